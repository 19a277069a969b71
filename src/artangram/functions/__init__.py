"""Serverless functions: stateless code that runs in warm workers, or on a platform by URL.

- `function` marks code, `Function` encodes its calls; both are light enough for every client.
- `local.LocalFunctions` runs them in worker processes of this machine, from zero to a ceiling and
  back; `platform.HttpFunctions` runs them behind a URL. Both are a `Runner`.
- The same call made twice is the orchestrator's affair (a `key`): it remembers over restarts and
  over processes, which nothing here does.
"""

from artangram.functions.function import Function, FunctionSpec, function, function_of, resolved

__all__ = ["Function", "FunctionSpec", "function", "function_of", "resolved"]
