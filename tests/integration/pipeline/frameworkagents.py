"""Agents of frameworks that know nothing of us: with tools, sub-agents, their own temperature.

Each asks a tool which verb belongs to a word, then says both. What the gateway says was sampled for
an attempt is remembered by its key, from the HTTP answers that the framework reads.
"""

import json
import operator
from typing import Annotated, TypedDict

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from artangram.envs.agents import AttemptFailed
from integration.pipeline.agentwork import HEARD, RIGHT, problems, score

__all__ = ["delegating_sdk", "few", "graph", "problems", "score", "sdk", "typed"]

INSTRUCTIONS = "say it"
EXACT = {"return_token_ids": True}
MOST_TOKENS = 40
CALLED = '<call> {{"name": "look", "arguments": {{"{argument}": "{word}"}}}}'


def few(seed):
    return [{"word": word} for word in RIGHT]


def remembering(llm):
    """An HTTP client that notes which tokens each answer was made of."""

    async def note(response):
        found = json.loads(await response.aread())
        for choice in found.get("choices", []):
            HEARD.setdefault(llm.api_key, []).append(tuple(choice["artangram"]["token_ids"]))

    return DefaultAsyncHttpxClient(verify=False, event_hooks={"response": [note]})


def a_client(llm):
    return AsyncOpenAI(
        base_url=llm.base_url, api_key=llm.api_key, max_retries=0, http_client=remembering(llm)
    )


async def sdk(problem, llm, client):
    """OpenAI's agents SDK, over chat completions."""
    return await _sdk(problem, llm, is_delegated=False)


async def delegating_sdk(problem, llm, client):
    """The same, where the tool is a sub-agent with a conversation of its own."""
    return await _sdk(problem, llm, is_delegated=True)


async def _sdk(problem, llm, *, is_delegated):
    from agents import Agent, ModelSettings, RunConfig, Runner, function_tool
    from agents.exceptions import AgentsException
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    @function_tool
    def look(word: str) -> str:
        return RIGHT.get(word, "up")

    async with a_client(llm) as openai_client:
        model = OpenAIChatCompletionsModel(model="gpt-5", openai_client=openai_client)
        settings = ModelSettings(max_tokens=MOST_TOKENS, extra_body=EXACT)

        def an_agent(name, tools):
            return Agent(
                name=name,
                instructions=INSTRUCTIONS,
                model=model,
                model_settings=settings,
                tools=tools,
            )

        tools = [look]
        if is_delegated:
            helper = an_agent("helper", [])
            tools = [helper.as_tool(tool_name="look", tool_description="Look.")]
        try:
            found = await Runner.run(
                an_agent("main", tools),
                problem["word"],
                max_turns=3,
                run_config=RunConfig(tracing_disabled=True),
            )
        except AgentsException as error:
            raise AttemptFailed(str(error)) from error
    return str(found.final_output)


async def typed(problem, llm, client):
    """Pydantic AI, at a temperature of its own."""
    from pydantic_ai import Agent
    from pydantic_ai.exceptions import AgentRunError
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    async with a_client(llm) as openai_client:
        model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=openai_client))
        agent = Agent(
            model,
            instructions=INSTRUCTIONS,
            model_settings={"temperature": 0.7, "max_tokens": MOST_TOKENS, "extra_body": EXACT},
        )

        @agent.tool_plain
        def look(word: str) -> str:
            return RIGHT.get(word, "up")

        try:
            found = await agent.run(problem["word"], usage_limits=UsageLimits(request_limit=3))
        except AgentRunError as error:
            raise AttemptFailed(str(error)) from error
    return found.output


class Said(TypedDict):
    messages: Annotated[list, operator.add]


async def graph(problem, llm, client):
    """LangGraph: a node for the model, one for the tool, and one that forgets and sums up."""
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    spec = {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    }
    http = remembering(llm)
    model = ChatOpenAI(
        model="gpt-5",
        base_url=llm.base_url,
        api_key=llm.api_key,
        max_retries=0,
        http_async_client=http,
        extra_body=EXACT | {"max_tokens": MOST_TOKENS},
    ).bind_tools([{"type": "function", "function": spec}])

    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    def use(state):
        calls = state["messages"][-1].tool_calls
        told = [RIGHT.get(call["args"].get("word"), "up") for call in calls]
        return {
            "messages": [
                ToolMessage(text, tool_call_id=call["id"])
                for text, call in zip(told, calls, strict=True)
            ]
        }

    def after(state):
        is_early = len(state["messages"]) < 5
        return "use" if state["messages"][-1].tool_calls and is_early else END

    built = StateGraph(Said)
    built.add_node("ask", ask)
    built.add_node("use", use)
    built.add_edge(START, "ask")
    built.add_edge("use", "ask")
    built.add_conditional_edges("ask", after)
    start = [SystemMessage(INSTRUCTIONS), HumanMessage(problem["word"])]
    try:
        found = await built.compile().ainvoke({"messages": start})
        # Compaction: only a summary of what was said is left.
        summed = [SystemMessage("so far"), HumanMessage(problem["word"])]
        await model.ainvoke(summed)
    finally:
        await http.aclose()
    return str(found["messages"][-1].content)


FRAMEWORKS = {"sdk": sdk, "delegating_sdk": delegating_sdk, "typed": typed, "graph": graph}
