"""Read from YAML which engines a run samples with.

```yaml
pools:                                                  # by hardware class, which is any name
  compute: {vllm: [.venv-vllm/bin/python], devices: ["0", "1"]}     # started and watched: two
  bandwidth: {urls: ["http://10.0.0.7:8000"]}                       # given
affinity: {lake: compute, math: bandwidth}              # or auto, which learns it
split: {code: {prefill: compute, decode: bandwidth}}    # or auto; none if unsaid
```
"""

from artangram.config.yamlfile import read_yaml
from artangram.observe.badfile import AnyPath
from artangram.pipeline.enginepools import EnginePool, EnginesSpec

_FIX = "see docs/training.md"


def read_engines(path: AnyPath) -> EnginesSpec:
    """The engines that a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known(EnginesSpec.__struct_fields__)
    values = {key: item.plain() for key, item in top.items() if key != "pools"}
    if "pools" in top:
        pools = {}
        for name, item in top["pools"].mapping().items():
            item.known(EnginePool.__struct_fields__)
            pools[name] = item.converted(EnginePool, item.plain(), fix=_FIX)
        values["pools"] = pools
    return document.converted(EnginesSpec, values, fix=_FIX)
