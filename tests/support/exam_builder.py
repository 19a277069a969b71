"""Evaluations of a training run that was never made."""

from artangram.pipeline.evaluation import Evaluation
from artangram.pipeline.exams import ExamRecord


def found(success: float) -> Evaluation:
    return Evaluation(success=success, by_task={"calc": success}, problems=4, failed=0)


def an_exam(step: int, success: float) -> ExamRecord:
    return ExamRecord(step=step, version=step, took_s=1.0, is_best=False, found=found(success))
