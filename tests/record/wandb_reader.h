// Python program that prints the records of a .wandb file, as the real package reads them, as a JSON list.
#pragma once

namespace colonnade::test {

inline constexpr const char* kWandbReader = R"(
import json, sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore

def value(item):
    parsed = json.loads(item.value_json)
    return None if parsed != parsed else parsed

def values(items):
    return {item.nested_key[0] if item.nested_key else item.key: value(item) for item in items}

store = datastore.DataStore()
store.open_for_scan(sys.argv[1])
rows = []
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof('record_type')
    row = {'kind': kind, 'num': record.num}
    if kind == 'run':
        run = record.run
        row.update(id=run.run_id, project=run.project, entity=run.entity, name=run.display_name,
                   config=values(run.config.update))
    elif kind == 'history':
        row.update(step=record.history.step.num, items=values(record.history.item))
    elif kind == 'summary':
        row.update(items=values(record.summary.update))
    elif kind == 'exit':
        row.update(code=record.exit.exit_code)
    rows.append(row)
print(json.dumps(rows))
)";

}  // namespace colonnade::test
