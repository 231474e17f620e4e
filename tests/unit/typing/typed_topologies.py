"""Components and topologies for the type checker. A comment `# error: TEXT` names the error that its line must have."""

from __future__ import annotations

from typing import Any, assert_type

from heronry import BasicBolt, Config, Grouping, Spout, Stream, Topology, TopologyContext, Tuple
from heronry.api.metrics import CountMetric
from heronry.api.spec import ComponentDeclaration


class Words(Spout):
    outputs = ("word",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        assert_type(context.get_task_index(), int)
        context.get_task_idx()  # error: "get_task_idx"
        self.emitted = context.register_metric("emitted", CountMetric())
        assert_type(self.emitted, CountMetric)
        context.register_metric("wrong", 3)  # error: Value of type variable "M"

    def next_tuple(self) -> None:
        self.emitted.incr()
        self.emit(["heron"], tup_id=1)
        self.emit(["heron"], id=1)  # error: Unexpected keyword argument "id"


class Count(BasicBolt):
    outputs = ("word", Stream(["error"], name="errors"))

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.keyed[word] = self.keyed.get(word, 0) + 1
        self.keyed.put(word, 1, ttl=60.0)
        self.keyed.put(word, 1, time_to_live=60.0)  # error: "time_to_live"
        self.state["last"] = word
        self.ackk(tup)  # error: "ackk"


class WordCount(Topology):
    config = Config().set_num_stmgrs(2)
    words = Words.spec(par=2)
    count = Count.spec(par=2, inputs={words: Grouping.fields("word")})
    errors = Count.spec(inputs={count["errors"]: Grouping.SHUFFLE})
    shuffled = Count.spec(inputs=[words, count["errors"]])
    both = Count.spec(inputs={words: Grouping.SHUFFLE, count["errors"]: Grouping.ALL})


assert_type(WordCount.words, ComponentDeclaration)
Words.spec(parallelism=2)  # error: Unexpected keyword argument "parallelism"
Words.spec(par="2")  # error: incompatible type "str"
Count.spec(inputs={WordCount.words: "shuffle"})  # error: "ComponentDeclaration": "str"
Config(topology_stmgrs=2, topology_log_level="INFO", topology_container_ram="2GB")
Config(topology_stmgrs="2")  # error: incompatible type "str"
Config(topology_log_level="LOUD")  # error: incompatible type
Config(topology_stmgr=2)  # error: Unexpected keyword argument "topology_stmgr"
Config().set_num_stmgrs("2")  # error: incompatible type "str"
wrong = Config.TOPOLOGY_NONSENSE  # error: "TOPOLOGY_NONSENSE"
