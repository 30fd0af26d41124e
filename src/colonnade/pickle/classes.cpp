// See classes.h. Sources: torch/distributed/checkpoint/metadata.py, filesystem.py and planner.py;
// torch/_utils.py; megatron/core/dist_checkpointing/strategies/torch.py; megatron/training/checkpointing.py.
#include "colonnade/pickle/classes.h"

#include <algorithm>
#include <array>

namespace colonnade::pickle {
namespace {

struct Known {
  std::string_view module;
  std::string_view names;  ///< separated by spaces; "*": all of the module and of those below it
};

constexpr std::array kKnown = {
    Known{"collections", "OrderedDict defaultdict"},
    Known{"builtins", "set frozenset bytearray slice complex dict list tuple int float str bool range"},
    Known{"__builtin__", "set frozenset bytearray slice complex dict list tuple int float str bool range"},
    Known{"_codecs", "encode"},
    Known{"_io", "BytesIO"},
    Known{"copyreg", "_reconstructor"},
    Known{"copy_reg", "_reconstructor"},
    Known{"argparse", "Namespace"},
    Known{"types", "SimpleNamespace"},
    Known{"pathlib", "Path PosixPath PurePosixPath PurePath"},
    Known{"pathlib._local", "Path PosixPath PurePosixPath PurePath"},
    Known{"signal", "Signals"},
    Known{"datetime", "timedelta datetime"},
    Known{
        "torch",
        "Size device float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool "
        "float8_e4m3fn float8_e5m2 float8_e8m0fnu complex64 complex128 half double float long int short strided "
        "FloatStorage DoubleStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage CharStorage "
        "ByteStorage BoolStorage UntypedStorage"},
    Known{"torch.storage", "UntypedStorage TypedStorage _load_from_bytes"},
    Known{"torch._utils", "_rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter"},
    Known{"torch.serialization", "_get_layout"},
    Known{
        "torch.distributed.checkpoint.metadata",
        "Metadata TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata MetadataIndex StorageMeta "
        "TensorProperties _MEM_FORMAT_ENCODING"},
    Known{"torch.distributed.checkpoint.filesystem", "_StorageInfo _StoragePrefix"},
    Known{"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties MEM_FORMAT_ENCODING"},
    Known{"torch.distributed.checkpoint.planner", "SavePlan WriteItem WriteItemType TensorWriteData"},
    Known{"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata MCoreSavePlan"},
    Known{"megatron.core.transformer.enums", "*"},
    Known{"megatron.core.enums", "ModelType Fp8Recipe Fp4Recipe"},
    Known{"megatron.core.rerun_state_machine", "*"},
    Known{"transformer_engine.common.recipe", "*"},
    Known{"numpy", "ndarray dtype"},
    Known{"numpy.dtypes", "*"},
    Known{"numpy.core.multiarray", "_reconstruct scalar"},
    Known{"numpy._core.multiarray", "_reconstruct scalar"},
};

/// Whether `name` is one of `names`, which are separated by spaces.
bool contains_word(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::string_view word = names.substr(0, names.find(' '));
    if (word == name) return true;
    names.remove_prefix(std::min(word.size() + 1, names.size()));
  }
  return false;
}

}  // namespace

bool is_known_class(std::string_view module, std::string_view name) {
  return std::ranges::any_of(kKnown, [&](const Known& known) {
    if (known.names == "*")
      return module == known.module ||
             (module.starts_with(known.module) && module.substr(known.module.size()).starts_with('.'));
    return module == known.module && contains_word(known.names, name);
  });
}

}  // namespace colonnade::pickle
