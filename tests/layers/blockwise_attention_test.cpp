// Context-parallel attention of every kind against float64 attention over the full sequence.
#include "layers/support.h"

#include "colonnade/layers/core_attention.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/context_parallel.h"
#include "layers/sizes.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

constexpr std::int64_t kHeads = 8, kHead = 6, kBlockSequence = 32;
constexpr double kScale = 0.4;

struct Kind {
  const char* name;
  int cp;
  std::int64_t groups;
  std::vector<int> levels = {};
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name << " " << kind.cp; }

/// Document bounds of both samples, and their mask [b, 1, s, s], true = masked.
const layout::Documents kDocuments{{0, 5, 21, 32, 48, 62, 64}};
Tensor document_mask() {
  const Tensor at = at::arange(kBlockSequence, test::options(at::kLong));
  const Tensor document =
      at::stack({(at >= 5).to(at::kLong) + (at >= 21), (at >= 16).to(at::kLong) + (at >= 30)});
  return document.unsqueeze(2).ne(document.unsqueeze(1)).unsqueeze(1);
}

struct Masks {
  const char* name;
  std::int64_t window;
  bool documents;
};
constexpr Masks kMasks[] = {{"causal", 0, false},
                            {"window", 5, false},
                            {"long window", 20, false},
                            {"documents", 0, true},
                            {"both", 9, true}};

/// Soft cap on scores and dropout on attention weights.
struct Scores {
  double softcap, dropout;
};
constexpr Scores kScores[] = {{0, 0}, {0.7, 0}, {0, 0.3}, {0.7, 0.3}};

constexpr std::uint64_t kSeed = 17;
Tensor samples() { return at::tensor({5, 1000000007}, test::options(at::kLong)); }

/// Dropout factor of each attention weight of the full sequence.
Tensor dropout_factors(double dropout) {
  const Tensor all = at::ones({kBatch, kHeads, kBlockSequence, kBlockSequence}, test::options(at::kDouble));
  return ops::attention_dropout(all, dropout,
                                {.key = dropout_stream(kSeed, "layer"),
                                 .samples = samples(),
                                 .sequence_length = kBlockSequence,
                                 .hidden_size = kHeads});
}

/// Reference output and gradients of q, k, v for the probe.
std::vector<Tensor> reference_attention(const std::vector<Tensor>& qkv, const Masks& masks,
                                        const Scores& through, const Tensor& probe) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : qkv) leaves.push_back(x.clone().set_requires_grad(true));
  const std::int64_t repeat = kHeads / qkv[1].size(1);
  const Tensor k = leaves[1].repeat_interleave(repeat, 1), v = leaves[2].repeat_interleave(repeat, 1);
  const Tensor query = at::arange(kBlockSequence, test::options(at::kLong)).unsqueeze(1), key = query.t();
  Tensor hidden = (key > query).view({1, 1, kBlockSequence, kBlockSequence});
  if (masks.window > 0) hidden = hidden.logical_or(key < query - masks.window);
  if (masks.documents) hidden = hidden.logical_or(document_mask());
  Tensor scores = at::matmul(leaves[0], k.transpose(-1, -2)) * kScale;
  if (through.softcap > 0) scores = through.softcap * (scores / through.softcap).tanh();
  const Tensor weights = scores.masked_fill(hidden, -1e300).softmax(-1) * dropout_factors(through.dropout);
  const Tensor y =
      at::matmul(weights, v).permute({2, 0, 1, 3}).reshape({kBlockSequence, kBatch, kHeads * kHead});
  y.backward(probe);
  return {y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

/// The tokens of one context rank.
Tensor part(const Tensor& whole, std::int64_t dim, const comm::Group& cp) {
  std::vector<Tensor> parts;
  for (const layout::TokenSpan& chunk : layout::context_chunks(kBlockSequence, cp.rank(), cp.size()))
    parts.push_back(whole.narrow(dim, chunk.begin, chunk.length));
  return at::cat(parts, dim);
}

class ContextParallel : public testing::TestWithParam<Kind> {};

void expect_full_attention(const Kind& kind, const Masks& masks, const Scores& through) {
  config::Parallel parallel;
  parallel.world_size = parallel.context_parallel_size = kind.cp;
  parallel.cp_comm_type = {kind.name};
  parallel.hierarchical_context_parallel_sizes = kind.levels;
  const auto random = [](const char* name, std::int64_t heads) {
    return test::named_random(name, {kBatch, heads, kBlockSequence, kHead});
  };
  const std::vector<Tensor> qkv{random("q", kHeads), random("k", kind.groups), random("v", kind.groups)};
  const Tensor probe = test::named_random("probe", {kBlockSequence, kBatch, kHeads * kHead});
  const auto expected = reference_attention(qkv, masks, through, probe);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    config::Model model;
    model.num_attention_heads = kHeads;
    model.window_size = masks.window;
    model.attention_dropout = through.dropout;
    model.attn_logit_softcapping = through.softcap;
    Context context{.options = test::options(at::kDouble), .seed = kSeed};
    context.cp = {.all = ranks.group({layout::Axis::kCp}), .parallel = parallel};
    if (!kind.levels.empty())
      std::tie(context.cp.a2a, context.cp.p2p) =
          ranks.inner_outer_groups({layout::Axis::kCp}, kind.levels[0]);
    const CoreAttention core(model, context, {.scale = kScale, .name = "layer"});
    std::vector<Tensor> leaves;
    for (const Tensor& x : qkv) leaves.push_back(part(x, 2, context.cp.all).set_requires_grad(true));
    tensor::Batch batch;
    batch.set(tensor::Field::kSamples, samples());
    if (masks.documents) batch.set_documents(kDocuments);
    const Tensor y = core.forward({leaves[0], leaves[1], leaves[2]}, {.batch = batch, .training = true});
    y.backward(part(probe, 0, context.cp.all));
    EXPECT_LT(test::distance(y.detach(), part(expected[0], 0, context.cp.all)), 1e-12);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_LT(test::distance(leaves[i].grad(), part(expected[i + 1], 2, context.cp.all)), 1e-12)
          << "gradient of "
          << "qkv"[i];
  });
}

TEST_P(ContextParallel, EqualsAttentionOverTheFullSequence) {
  for (const Masks& masks : kMasks)
    for (const Scores& through : kScores) {
      SCOPED_TRACE(fmt::format("{}, cap {}, dropout {}", masks.name, through.softcap, through.dropout));
      expect_full_attention(GetParam(), masks, through);
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ContextParallel,
                         testing::Values(Kind{"all_gather", 2, 8}, Kind{"all_gather", 4, 2},
                                         Kind{"p2p", 2, 8}, Kind{"p2p", 4, 2}, Kind{"p2p", 8, 1},
                                         Kind{"a2a", 2, 8}, Kind{"a2a", 4, 2}, Kind{"a2a", 8, 4},
                                         Kind{"a2a+p2p", 4, 8, {2, 2}}, Kind{"a2a+p2p", 8, 2, {4, 2}},
                                         Kind{"a2a+p2p", 8, 2, {2, 4}}, Kind{"a2a+p2p", 4, 2, {4, 1}},
                                         Kind{"a2a+p2p", 4, 2, {1, 4}}),
                         [](const auto& info) {
                           std::string name = fmt::format("{}Cp{}Groups{}", info.param.name, info.param.cp,
                                                          info.param.groups);
                           for (const int level : info.param.levels) name += fmt::format("x{}", level);
                           std::erase_if(name, [](char c) { return c == '_' || c == '+'; });
                           return name;
                         });

}  // namespace
}  // namespace colonnade::layers
