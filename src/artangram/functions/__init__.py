"""Serverless functions: stateless code that runs in warm workers, or on a platform by URL.

- `function` marks code, `Function` encodes its calls; both are light enough for every client.
- `local.LocalFunctions` runs them in worker processes of this machine, from zero to a ceiling and
  back; `platform.HttpFunctions` runs them behind a URL. Both are a `FunctionRunner`.
- Nothing here remembers calls: the orchestrator makes a call with a `key` once, also over
  restarts.
"""

from artangram.functions.function import Function, FunctionSpec, function, function_of, resolved

__all__ = ["Function", "FunctionSpec", "function", "function_of", "resolved"]
