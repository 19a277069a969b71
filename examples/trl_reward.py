"""A reward for TRL that runs what the model wrote: each completion in a sandbox of its own.

Uses the service at `ARTANGRAM_URL` if it is set, else this process.
"""

import asyncio
import os

import artangram
from artangram.core.scheduling.action import Outcome

JUDGED = {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT}
"""What says something about the program; everything else is infrastructure."""


def opened():
    if url := os.environ.get("ARTANGRAM_URL"):
        return artangram.connect(url, token=os.environ.get("ARTANGRAM_TOKEN"))
    return artangram.local()


async def runs(completions, answer, **rest):
    """1 where the program prints the answer; `None`, which TRL leaves out, if it is unknown."""
    async with opened() as client:
        pairs = zip(completions, answer, strict=True)
        return await asyncio.gather(*(judged(client, *pair) for pair in pairs))


async def judged(client, program, answer):
    async with client.trajectory(job="trl", task="program", memory_mb=128) as sandbox:
        await sandbox.write("program.py", program)
        result = await sandbox.run(["python3", "program.py"], timeout_s=10, kind="program/run")
        if result.outcome not in JUDGED or result.start_error:
            return None
        return float(result.ok and result.stdout.strip() == answer)


def main():
    """Two steps of TRL with a tiny model of random weights, so that nothing is downloaded."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = {word: n for n, word in enumerate(["<pad>", "<end>", "print(6)", "print(7)", "six"])}
    split = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    split.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token="<pad>", eos_token="<end>"
    )
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=1,
        pad_token_id=0,
    )
    settings = GRPOConfig(
        output_dir="out/trl",
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = GRPOTrainer(
        model=Qwen2ForCausalLM(config),
        reward_funcs=[runs],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "six", "answer": "6"}] * 8),
        processing_class=tokenizer,
    )
    trainer.train()


if __name__ == "__main__":
    main()
