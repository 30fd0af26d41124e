// See torch_dist.h.
#include "colonnade/convert/megatron/torch_dist.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/distributed.h"
#include "colonnade/convert/megatron/flat_buffers.h"
#include "colonnade/convert/megatron/masters.h"
#include "colonnade/convert/megatron/numbered.h"
#include "colonnade/convert/megatron/values.h"

namespace colonnade::convert::megatron {

namespace fs = std::filesystem;
using checkpoint::Box;
using checkpoint::ComposedTensor;
using checkpoint::Part;
using checkpoint::Sizes;

namespace {

/// The state of a stored name: masters are named after their kind of optimizer.
std::string state_named(const std::string& stored) { return stored == "fp32_param" ? "param" : stored; }

bool is_known_state(const std::string& state) {
  return std::ranges::find(kStates, state) != std::end(kStates);
}

std::string without_module(const std::string& key) {
  constexpr std::string_view kModule = "module.";
  return key.starts_with(kModule) ? key.substr(kModule.size()) : key;
}

/// "optimizer.state.exp_avg.decoder.x" as state and model key; nothing for other names.
struct StateKey {
  std::string state, key;
};
std::optional<StateKey> state_key(const std::string& name) {
  constexpr std::string_view kPrefix = "optimizer.state.";
  const auto at = name.find(kPrefix);
  if (at == std::string::npos || (at != 0 && !name.starts_with("chained_"))) return std::nullopt;
  const std::size_t begin = at + kPrefix.size();
  const auto dot = name.find('.', begin);
  if (dot == std::string::npos) return std::nullopt;
  return StateKey{state_named(name.substr(begin, dot - begin)), without_module(name.substr(dot + 1))};
}

bool is_model_key(const std::string& name) {
  return !name.starts_with("optimizer.") && !name.starts_with("chained_") && !name.starts_with("rng_state") &&
         !name.starts_with("rerun_state_machine");
}

/// A tensor stored as a grid of blocks, each flattened: shape [S_k / s_k ..., prod s_k] for the model's shape
/// S. In the model's shape.
ComposedTensor of_model_space(const std::string& name, const ComposedTensor& stored, const Sizes& shape) {
  const std::size_t dims = shape.size();
  Sizes block(dims);
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    if (stored.shape[d] < 1 || shape[d] % stored.shape[d] != 0)
      throw DataError(
          fmt::format("'{}' must be a grid of blocks of its parameter; got another shape; take another "
                      "checkpoint, or add --no-load-optim",
                      name));
    block[d] = shape[d] / stored.shape[d];
    elements *= block[d];
  }
  if (elements != stored.shape[dims])
    throw DataError(
        fmt::format("'{}' must have blocks of {} elements; got {}; take another checkpoint, or add "
                    "--no-load-optim",
                    name, elements, stored.shape[dims]));
  ComposedTensor whole{.dtype = stored.dtype, .shape = shape, .parts = {}, .compute = {}};
  for (const Part& part : stored.parts) {
    const Sizes cells(part.box.shape.begin(), part.box.shape.end() - 1);
    const std::int64_t begin = part.box.offset[dims], end = begin + part.box.shape[dims];
    const std::int64_t count = Box{Sizes(dims, 0), cells}.numel();
    for (std::int64_t i = 0; i < count; ++i) {
      at::Tensor row = part.data;
      Sizes corner(dims);
      std::int64_t rest = i;
      for (std::size_t d = dims; d > 0; --d) {
        const std::int64_t cell = rest % cells[d - 1];
        rest /= cells[d - 1];
        corner[d - 1] = (part.box.offset[d - 1] + cell) * block[d - 1];
        row = row.select(static_cast<std::int64_t>(d - 1), cell);
      }
      std::int64_t done = 0;
      for (Box& box : checkpoint::boxes_of_range(block, begin, end)) {
        at::Tensor data = row.narrow(0, done, box.numel()).view(box.shape);
        done += box.numel();
        for (std::size_t d = 0; d < dims; ++d) box.offset[d] += corner[d];
        whole.parts.push_back({std::move(box), std::move(data)});
      }
    }
  }
  return whole;
}

/// A flat buffer's place: optimizer of dense parameters (0) or experts (1), rank, model chunk, dtypes.
struct BufferKey {
  std::int64_t chain = 0, group = 0, chunk = 0;
  std::string dtypes;
  auto operator<=>(const BufferKey&) const = default;
};

struct StoredBuffers {
  std::map<std::string, std::map<std::int64_t, ComposedTensor>> buckets;  ///< by state and bucket
};

class TorchDistReader {
 public:
  explicit TorchDistReader(const fs::path& folder) : stored_(checkpoint::open_distributed(folder)) {
    source_.folder = folder;
  }

  Source read() {
    read_common();
    experts_ = integer_arg(source_.args, "num_experts", 0);
    for (const auto& [name, tensor] : stored_.tensors)
      if (is_model_key(name)) add_numbered(source_.model, without_module(name), tensor, experts_of(name));
    read_states();
    drop_wrong_states();
    read_buffers();
    if (source_.param_groups.is_null()) source_.param_groups = groups_of_buffers();
    return std::move(source_);
  }

 private:
  /// Numbered experts of checkpoints without args: as many as their names have.
  std::int64_t experts_of(const std::string& name) {
    if (experts_ > 0 || name.find(".experts.experts.") == std::string::npos) return experts_;
    static const std::regex kExpert(R"(\.experts\.experts\.(\d{1,6})\.)");
    for (const auto& [key, tensor] : stored_.tensors) {
      std::smatch match;
      if (std::regex_search(key, match, kExpert)) experts_ = std::max(experts_, std::stol(match[1]) + 1L);
    }
    return experts_;
  }

  void read_common() {
    const fs::path file = source_.folder / "common.pt";
    std::error_code unreadable;
    const auto object = stored_.objects.find("common_state/shard_0_1");
    if (fs::exists(file, unreadable)) {
      const checkpoint::TorchFile common = checkpoint::TorchFile::open(file);
      source_.common = to_json(&common.root());
    } else if (object != stored_.objects.end()) {
      source_.common = to_json(of_list(object->second.root()));
    } else {
      source_.common = nlohmann::json::object();
    }
    if (!source_.common.is_object()) source_.common = nlohmann::json::object();
    source_.args = source_.common.value("args", nlohmann::json::object());
    if (!source_.args.is_object()) source_.args = nlohmann::json::object();
    source_.common.erase("args");
    source_.param_groups = groups_in(source_.common.value("optimizer", nlohmann::json()));
  }

  /// Objects are stored as lists of one value.
  static const pickle::Value* of_list(const pickle::Value& value) {
    return value.is(pickle::Kind::kList) && value.items.size() == 1 ? value.items[0] : &value;
  }

  /// The first param_groups in the optimizer's common state, which is one optimizer's or a chain's.
  static nlohmann::json groups_in(const nlohmann::json& optimizer) {
    if (optimizer.is_array()) return optimizer.empty() ? nlohmann::json() : groups_in(optimizer[0]);
    if (!optimizer.is_object()) return nullptr;
    if (optimizer.contains("param_groups")) return optimizer["param_groups"];
    for (const char* inner : {"optimizer", "0"})
      if (optimizer.contains(inner)) return groups_in(optimizer[inner]);
    return nullptr;
  }

  void read_states() {
    for (const auto& [name, tensor] : stored_.tensors) {
      const auto key = state_key(name);
      if (!key || !is_known_state(key->state)) continue;
      const auto of_model = stored_model_tensor(key->key);
      const bool is_grid = of_model != nullptr && tensor.shape.size() == of_model->shape.size() + 1;
      add_numbered(source_.optimizer[key->state], key->key,
                   is_grid ? of_model_space(name, tensor, of_model->shape) : tensor, experts_of(name));
    }
  }

  /// megatron-core 0.15 to 0.19.2 shifts the states of all parameters after the first bucket of a buffer with
  /// padding (fixed by its PR 5077): then the masters do not equal the weights.
  void drop_wrong_states() {
    const auto masters = source_.optimizer.find("param");
    if (masters == source_.optimizer.end() || masters_equal_weights(source_.model, masters->second)) return;
    source_.optimizer.clear();
    source_.dropped =
        "the optimizer's masters do not equal the weights, a known fault of megatron-core 0.15 to 0.19.2 in saving "
        "fully_reshardable states (its PR 5077): the weights are right and are used; moments and step count restart";
  }

  /// param_groups of an optimizer with flat buffers.
  nlohmann::json groups_of_buffers() const {
    for (const auto& [name, object] : stored_.objects)
      if (name.ends_with("optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1"))
        return groups_in(to_json(of_list(object.root())));
    return nullptr;
  }

  const ComposedTensor* stored_model_tensor(const std::string& key) const {
    for (const char* prefix : {"", "module."})
      if (const auto found = stored_.tensors.find(prefix + key); found != stored_.tensors.end())
        return &found->second;
    return nullptr;
  }

  // ---- flat buffers

  void read_buffers() {
    static const std::regex kBuffer(
        R"((?:chained_(\d{1,3})\.)?optimizer\.distributed\.dp_group_idx_(\d{1,6})\.)"
        R"(gbuf_idx_(\d{1,6})\.dtype_(\(.*\))\.bucket_idx_(\d{1,6})\.(\w+))");
    std::map<BufferKey, StoredBuffers> buffers;
    for (const auto& [name, tensor] : stored_.tensors) {
      std::smatch m;
      if (!std::regex_match(name, m, kBuffer) || tensor.shape.size() != 1) continue;
      is_chained_ = is_chained_ || m[1].matched;
      const BufferKey key{m[1].matched ? std::stol(m[1]) : 0, std::stol(m[2]), std::stol(m[3]), m[4]};
      const std::string state = state_named(m[6]);
      if (is_known_state(state)) buffers[key].buckets[state][std::stol(m[5])] = tensor;
    }
    if (buffers.empty()) return;
    for (const ModuleOrder order : {ModuleOrder::kTransformerEngine, ModuleOrder::kLocal}) {
      std::map<std::string, Tensors> states;
      if (!unflatten_all(buffers, order, states)) continue;
      if (!masters_equal_weights(source_.model, states["param"])) continue;
      source_.optimizer = std::move(states);
      return;
    }
    throw DataError(fmt::format(
        "{}: optimizer states in flat buffers must be in the parameter order of Transformer Engine's or Megatron's "
        "modules; got masters that equal the weights in neither; save them as fully_reshardable with Megatron, or add "
        "--no-load-optim",
        source_.folder.string()));
  }

  /// False where the parameters in this order do not fill the buckets.
  bool unflatten_all(const std::map<BufferKey, StoredBuffers>& buffers, ModuleOrder order,
                     std::map<std::string, Tensors>& states) {
    for (const auto& [key, buffer] : buffers) {
      const std::vector<FlatParam> params =
          of_dtype(params_of(source_, chunk_of(key), key.chain == 1, order), key, buffers);
      const std::vector<std::int64_t> unpadded = unpadded_sizes(key);
      if (!fits(params, unpadded)) return false;
      for (const auto& [state, buckets] : buffer.buckets) {
        FlatBuffer flat{.buckets = {}, .unpadded = unpadded};
        for (const auto& [number, bucket] : buckets) flat.buckets.push_back(bucket);
        for (std::size_t b = 0; b < unpadded.size(); ++b)
          if (b >= flat.buckets.size() || flat.buckets[b].shape[0] < unpadded[b])
            throw DataError(
                fmt::format("{}: the optimizer's {} must have {} elements in bucket {} of rank group {}; "
                            "got fewer; copy the folder again",
                            source_.folder.string(), state, unpadded[b], b, key.group));
        unflatten(flat, params, source_.model, states[state]);
      }
    }
    return true;
  }

  /// Parameters of the buffer's dtype; all of them where the rank has one buffer.
  std::vector<FlatParam> of_dtype(std::vector<FlatParam> params, const BufferKey& key,
                                  const std::map<BufferKey, StoredBuffers>& buffers) const {
    BufferKey other = key;
    other.dtypes = "";
    const auto first = buffers.lower_bound(other);
    const auto next = std::next(first);
    const bool one = next == buffers.end() || next->first.group != key.group ||
                     next->first.chain != key.chain || next->first.chunk != key.chunk;
    if (one && first->first.dtypes == key.dtypes) return params;
    std::erase_if(params, [&](const FlatParam& param) {
      const std::string name = param.name.empty() ? "embedding.word_embeddings.weight" : param.name;
      const at::ScalarType dtype = source_.model.at(name).dtype;
      const std::string begin = dtype == at::kBFloat16 ? "(torch.bfloat16,"
                                : dtype == at::kHalf   ? "(torch.float16,"
                                                       : "(torch.float32,";
      return !key.dtypes.starts_with(begin);
    });
    return params;
  }

  /// Ranks of a group of data-parallel ranks: of dense parameters tp runs fastest, then pp; of experts their
  /// tensor parallelism, then ep, then pp.
  RankChunk chunk_of(const BufferKey& key) const {
    const std::int64_t tp =
        std::max<std::int64_t>(integer_arg(source_.args, "tensor_model_parallel_size", 1), 1);
    if (key.chain == 0) return {.tp = key.group % tp, .pp = key.group / tp, .ep = 0, .vp = key.chunk};
    const std::int64_t etp =
        std::max<std::int64_t>(integer_arg(source_.args, "expert_tensor_parallel_size", tp), 1);
    const std::int64_t ep =
        std::max<std::int64_t>(integer_arg(source_.args, "expert_model_parallel_size", 1), 1);
    return {.tp = key.group % etp, .pp = key.group / (etp * ep), .ep = key.group / etp % ep, .vp = key.chunk};
  }

  /// Elements of each bucket without padding: [{(param dtype, grad dtype): [n, ...]}, one a chunk].
  std::vector<std::int64_t> unpadded_sizes(const BufferKey& key) const {
    const std::string name =
        fmt::format("{}optimizer.distributed.dp_group_idx_{}.per_bucket_numel_unpadded/shard_0_1",
                    is_chained_ ? fmt::format("chained_{}.", key.chain) : "", key.group);
    const auto object = stored_.objects.find(name);
    const auto fail = [&](std::string_view got) {
      throw DataError(
          fmt::format("{}: '{}' must list the elements of each bucket; got {}; copy the folder again, or "
                      "add --no-load-optim",
                      source_.folder.string(), name, got));
    };
    if (object == stored_.objects.end()) fail("none");
    const pickle::Value* chunks = of_list(object->second.root());
    if (chunks->is(pickle::Kind::kDict))
      chunks = &object->second.root();  // one chunk: the list of one itself
    if (!chunks->is(pickle::Kind::kList) || static_cast<std::size_t>(key.chunk) >= chunks->items.size() ||
        !chunks->items[static_cast<std::size_t>(key.chunk)]->is(pickle::Kind::kDict))
      fail("something else");
    const pickle::Value& by_dtype = *chunks->items[static_cast<std::size_t>(key.chunk)];
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i + 1 < by_dtype.items.size(); i += 2) {
      if (by_dtype.items.size() > 2 && dtypes_text(*by_dtype.items[i]) != key.dtypes) continue;
      if (!pickle::read_integers(by_dtype.items[i + 1], sizes)) fail("something else");
      return sizes;
    }
    fail("none of its dtypes");
    return sizes;
  }

  /// "(torch.bfloat16, torch.float32)".
  static std::string dtypes_text(const pickle::Value& dtypes) {
    return dtypes.items.size() == 2 ? fmt::format("({}, {})", dtypes.items[0]->text, dtypes.items[1]->text)
                                    : "";
  }

  checkpoint::DistributedFolder stored_;
  Source source_;
  std::int64_t experts_ = 0;
  bool is_chained_ = false;
};

}  // namespace

Source open_torch_dist(const fs::path& folder) { return TorchDistReader(folder).read(); }

}  // namespace colonnade::convert::megatron
