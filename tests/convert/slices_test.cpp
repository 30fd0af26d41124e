// Checkpoint slices of all ranks cover every tensor once, whatever the sharding.
#include "colonnade/convert/slices.h"

#include <set>

#include "colonnade/config/derive.h"
#include "colonnade/layout/params/gpt.h"
#include "support/device.h"
#include "support/split.h"

namespace colonnade::convert {
namespace {

using at::Tensor;
using checkpoint::Slice;
using models::hf::family_of_type;
using models::hf::Naming;

config::Model llama() {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = 8;
  m.ffn_hidden_size = 12;
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 6;
  m.vocab_size = 37;
  m.make_vocab_size_divisible_by = 8;
  m.max_position_embeddings = 5;
  m.position_embedding = config::PositionEmbedding::kRope;
  m.normalization = config::Normalization::kRmsNorm;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  m.untie_embeddings_and_output_weights = true;
  return m;
}

config::Model gpt2() {
  config::Model m = llama();
  m.num_query_groups = 4;
  m.kv_channels = 2;
  m.position_embedding = config::PositionEmbedding::kLearnedAbsolute;
  m.normalization = config::Normalization::kLayerNorm;
  m.activation = config::Activation::kGeluTanh;
  m.add_bias_linear = true;
  m.untie_embeddings_and_output_weights = false;
  return m;
}

config::Model mixtral() {
  config::Model m = llama();
  m.moe.num_experts = 4;
  m.moe.ffn_hidden_size = 10;
  return m;
}

/// Parameters of one rank whose elements are their indices in the full tensor.
std::vector<std::unique_ptr<tensor::Parameter>> numbered(const config::Model& model,
                                                         const config::Parallel& parallel,
                                                         const layout::Position& position) {
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<tensor::Parameter>> all;
  for (const auto& spec : layout::model_params(model, parallel)) {
    auto& p =
        all.emplace_back(std::make_unique<tensor::Parameter>(spec, position, test::options(at::kDouble)));
    p->value.fill_(-1);
    const Tensor full = at::arange(spec.numel(), test::options(at::kDouble)).view(spec.shape);
    for (const layout::ShardBox& part : p->shard.boxes)
      tensor::box_view(p->value, part.local, part.length)
          .copy_(tensor::box_view(full, part.global, part.length));
  }
  return all;
}

std::vector<std::unique_ptr<tensor::Parameter>> numbered(const config::Model& model, int rank, int tp) {
  return numbered(model, test::tensor_parallel(tp, false), layout::Position::on(layout::Axis::kTp, rank, tp));
}

/// Assembles tensors from slices and counts the owners of every element.
class Assembly {
 public:
  void add(const Slice& slice) {
    Part& part = parts_[slice.name];
    if (!part.value.defined()) {
      part.value = at::full(slice.global_shape, -1, test::options(at::kDouble));
      part.owners = at::zeros(slice.global_shape, test::options(at::kLong));
    }
    Tensor value = part.value;
    Tensor owners = part.owners;
    for (std::size_t d = 0; d < slice.offset.size(); ++d) {
      value = value.narrow(static_cast<std::int64_t>(d), slice.offset[d],
                           slice.data.size(static_cast<std::int64_t>(d)));
      owners = owners.narrow(static_cast<std::int64_t>(d), slice.offset[d],
                             slice.data.size(static_cast<std::int64_t>(d)));
    }
    if (slice.owner) owners.add_(1);
    if (slice.owner)
      value.copy_(slice.data);
    else
      others_.push_back({slice.data, value});
  }
  /// The assembled tensor; checks that each element had exactly one owner.
  Tensor full(const std::string& name) {
    const Part& part = parts_.at(name);
    EXPECT_TRUE(part.owners.eq(1).all().item<bool>()) << name;
    return part.value;
  }
  void expect_others_agree() const {
    for (const auto& [data, owned] : others_) EXPECT_TRUE(at::equal(data, owned));
  }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& [name, part] : parts_) names.insert(name);
    return names;
  }

 private:
  struct Part {
    Tensor value, owners;
  };
  std::map<std::string, Part> parts_;
  std::vector<std::pair<Tensor, Tensor>> others_;
};

/// Adds a rank's slices. Two replicas, of which the first saves.
void add_slices(Assembly& all, const tensor::Parameter& p, std::optional<Naming> family) {
  for (const bool owner : {true, false})
    for (const Slice& slice : model_slices(p, family, owner)) {
      Slice copy = slice;
      copy.data = slice.data.clone();
      all.add(copy);
    }
}

Assembly assembled(const config::Model& model, std::optional<Naming> family, int tp) {
  Assembly all;
  for (int rank = 0; rank < tp; ++rank)
    for (const auto& p : numbered(model, rank, tp)) add_slices(all, *p, family);
  all.expect_others_agree();
  return all;
}

Tensor numbers(std::int64_t first, std::int64_t rows, std::int64_t columns) {
  return at::arange(first * columns, (first + rows) * columns, test::options(at::kDouble))
      .view({rows, columns});
}

TEST(ModelSlices, LlamaTensorsAreRowsOfOurs) {
  for (const int tp : {1, 2, 4}) {
    SCOPED_TRACE(tp);
    Assembly all = assembled(llama(), family_of_type("llama"), tp);
    EXPECT_EQ(all.names().size(), 9U + 3);
    const std::string layer = "model.layers.0.";
    EXPECT_TRUE(at::equal(all.full(layer + "self_attn.q_proj.weight"), numbers(0, 24, 8)));
    EXPECT_TRUE(at::equal(all.full(layer + "self_attn.k_proj.weight"), numbers(24, 12, 8)));
    EXPECT_TRUE(at::equal(all.full(layer + "self_attn.v_proj.weight"), numbers(36, 12, 8)));
    EXPECT_TRUE(at::equal(all.full(layer + "self_attn.o_proj.weight"), numbers(0, 8, 24)));
    EXPECT_TRUE(at::equal(all.full(layer + "mlp.gate_proj.weight"), numbers(0, 12, 8)));
    EXPECT_TRUE(at::equal(all.full(layer + "mlp.up_proj.weight"), numbers(12, 12, 8)));
    EXPECT_TRUE(at::equal(all.full(layer + "mlp.down_proj.weight"), numbers(0, 8, 12)));
    EXPECT_TRUE(at::equal(all.full("model.embed_tokens.weight"), numbers(0, 37, 8)));  // no padding
    EXPECT_TRUE(at::equal(all.full("lm_head.weight"), numbers(0, 37, 8)));
    EXPECT_TRUE(at::equal(all.full("model.norm.weight"), at::arange(8, test::options(at::kDouble))));
  }
}

TEST(ModelSlices, Gpt2MatricesAreTransposed) {
  for (const int tp : {1, 2, 4}) {
    SCOPED_TRACE(tp);
    Assembly all = assembled(gpt2(), family_of_type("gpt2"), tp);
    EXPECT_EQ(all.names().size(), 12U + 4);
    const std::string layer = "transformer.h.0.";
    EXPECT_TRUE(at::equal(all.full(layer + "attn.c_attn.weight"), numbers(0, 24, 8).t()));
    EXPECT_TRUE(at::equal(all.full(layer + "attn.c_attn.bias"), at::arange(24, test::options(at::kDouble))));
    EXPECT_TRUE(at::equal(all.full(layer + "attn.c_proj.weight"), numbers(0, 8, 8).t()));
    EXPECT_TRUE(at::equal(all.full(layer + "mlp.c_fc.weight"), numbers(0, 12, 8).t()));
    EXPECT_TRUE(at::equal(all.full(layer + "mlp.c_proj.weight"), numbers(0, 8, 12).t()));
    EXPECT_TRUE(at::equal(all.full("transformer.wpe.weight"), numbers(0, 5, 8)));
  }
}

/// Tensors of all experts, sharded over ep * etp ranks; other parameters are replicated.
Assembly assembled_experts(const config::Model& model, std::optional<Naming> family, int ep, int etp) {
  config::Parallel parallel;
  parallel.expert_model_parallel_size = ep;
  parallel.expert_tensor_parallel_size = etp;
  Assembly all;
  for (int rank = 0; rank < ep * etp; ++rank) {
    auto position = layout::Position::on(layout::Axis::kEp, rank / etp, ep);
    position.set(layout::Axis::kEtp, rank % etp, etp);
    for (const auto& p : numbered(model, parallel, position))
      if (p->spec.param_group == layout::ParamGroup::kExpert || rank == 0) add_slices(all, *p, family);
  }
  all.expect_others_agree();
  return all;
}

TEST(ModelSlices, EachExpertHasItsOwnTensors) {
  for (const auto& [ep, etp] : {std::pair{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("ep {} etp {}", ep, etp));
    Assembly all = assembled_experts(mixtral(), family_of_type("mixtral"), ep, etp);
    EXPECT_EQ(all.names().size(), 3U + 6 + 1 + 4 * 3);
    const std::string moe = "model.layers.0.block_sparse_moe.";
    EXPECT_TRUE(at::equal(all.full(moe + "gate.weight"), numbers(0, 4, 8)));
    for (std::int64_t e = 0; e < 4; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", moe, e);
      EXPECT_TRUE(at::equal(all.full(expert + "w1.weight"), numbers(20 * e, 10, 8)));
      EXPECT_TRUE(at::equal(all.full(expert + "w3.weight"), numbers(20 * e + 10, 10, 8)));
      EXPECT_TRUE(at::equal(all.full(expert + "w2.weight"), numbers(8 * e, 8, 10)));
    }
  }
}

TEST(ModelSlices, ExpertsWithoutAFamilyAreOneTensor) {
  for (const auto& [ep, etp] : {std::pair{1, 1}, {2, 2}}) {
    Assembly all = assembled_experts(mixtral(), std::nullopt, ep, etp);
    for (const auto& spec : layout::model_params(mixtral(), {}))
      EXPECT_TRUE(at::equal(all.full(spec.name),
                            at::arange(spec.numel(), test::options(at::kDouble)).view(spec.shape)))
          << spec.name;
  }
}

TEST(ModelSlices, WithoutAFamilyTensorsAreOurs) {
  for (const int tp : {1, 2, 4}) {
    Assembly all = assembled(llama(), std::nullopt, tp);
    for (const auto& spec : layout::model_params(llama(), {}))
      EXPECT_TRUE(at::equal(all.full(spec.name),
                            at::arange(spec.numel(), test::options(at::kDouble)).view(spec.shape)))
          << spec.name;
  }
}

TEST(ModelSlices, ShareTheMemoryOfTheParameter) {
  for (const auto& p : numbered(llama(), 0, 2))
    for (const Slice& slice : model_slices(*p, family_of_type("llama"), true)) {
      slice.data.fill_(7);
      EXPECT_GT(p->value.detach().eq(7).sum().item<std::int64_t>(), 0) << slice.name;
    }
}

TEST(ModelSlices, CopiesOfTiedTablesAreNotOwned) {
  for (const auto& p : numbered(gpt2(), 0, 1)) {
    p->is_tied_copy = true;
    for (const Slice& slice : model_slices(*p, family_of_type("gpt2"), true)) EXPECT_FALSE(slice.owner);
    for (const Slice& slice : state_slices("s", *p, 0, p->value.detach().view(-1), true))
      EXPECT_FALSE(slice.owner);
  }
}

/// Adds the slices of flat ranges of `step` elements, as of bucket shards, over every parameter of `model`
/// on `tp` ranks; `slices(param, begin, range)` names them.
template <typename Slices>
Assembly assembled_from_ranges(const config::Model& model, int tp, std::int64_t step, Slices slices) {
  Assembly all;
  const auto add = [&](const tensor::Parameter& p) {
    const Tensor flat = p.value.detach().view(-1);
    for (std::int64_t begin = 0; begin < flat.numel(); begin += step) {
      const Tensor range = flat.narrow(0, begin, std::min(step, flat.numel() - begin));
      for (Slice slice : slices(p, begin, range)) {
        slice.data = slice.data.clone();
        all.add(slice);
      }
    }
  };
  for (int rank = 0; rank < tp; ++rank)
    for (const auto& p : numbered(model, rank, tp)) add(*p);
  return all;
}

/// Ranges of uneven length, also of transposed matrices.
TEST(ModelSlices, AnyRangesCoverEveryTensorOnce) {
  for (const auto& [model, family] : {std::pair{llama(), std::optional<Naming>(family_of_type("llama"))},
                                      {gpt2(), std::optional<Naming>(family_of_type("gpt2"))}})
    for (const std::int64_t step : {1, 5, 64, 100000}) {
      SCOPED_TRACE(step);
      Assembly expected = assembled(model, family, 1);
      Assembly all = assembled_from_ranges(
          model, 2, step,
          [&family = family](const tensor::Parameter& p, std::int64_t begin, const Tensor& range) {
            return model_slices(p, begin, range, family, true);
          });
      EXPECT_EQ(all.names(), expected.names());
      for (const std::string& name : expected.names())
        EXPECT_TRUE(at::equal(all.full(name), expected.full(name))) << name;
    }
}

void expect_state_ranges(const config::Model& model, int tp, std::int64_t step) {
  SCOPED_TRACE(fmt::format("tp {} ranges of {}", tp, step));
  Assembly all = assembled_from_ranges(
      model, tp, step, [](const tensor::Parameter& p, std::int64_t begin, const Tensor& range) {
        return state_slices("state of " + p.spec.name, p, begin, range, true);
      });
  for (const auto& spec : layout::model_params(model, {}))
    EXPECT_TRUE(at::equal(all.full("state of " + spec.name),
                          at::arange(spec.numel(), test::options(at::kDouble)).view(spec.shape)))
        << spec.name;
}

TEST(StateSlices, AnyRangesCoverEveryTensorOnce) {
  for (const auto& model : {llama(), gpt2()})
    for (const int tp : {1, 2, 4})
      for (const std::int64_t step : {1, 5, 64, 100000}) expect_state_ranges(model, tp, step);
}

}  // namespace
}  // namespace colonnade::convert
