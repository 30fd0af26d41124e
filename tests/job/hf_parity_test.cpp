// Hugging Face checkpoints give the logits, loss and gradients that Transformers computed, in every
// layout, and are written again with the same bits. Vectors and tolerances: manifest.json in tests/vectors/hf
// and hf_more.
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/config/stacks.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/spellings.h"
#include "job/runs.h"
#include "support/device.h"
#include "support/recorded_models.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

using checkpoint::test::TempFolder;
using tensor::Field;
using test::operator+;

using at::Tensor;

using test::Layout;

constexpr Layout kHfLayouts[] = {
    {"Tp1", 1, ""},
    {"Tp2", 2, "--tensor-model-parallel-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Tp4Sp", 4, "--tensor-model-parallel-size 4 --sequence-parallel"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2"},
    {"Dp2PerToken", 2, "--micro-batch-size 1 --calculate-per-token-loss"},
    {"Tp2Pp2", 4, "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"}};

/// Experts with tensor ranks need sequence parallelism in training, and --expert-tensor-parallel-size is the
/// tensor size where it is not given.
constexpr Layout kHfExpertLayouts[] = {
    {"Tp1", 1, ""},
    {"Tp2SpEtp2", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Tp4SpEtp4", 4, "--tensor-model-parallel-size 4 --sequence-parallel"},
    {"Tp2SpEtp2Exchange", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --moe-token-dispatcher-type alltoall"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2"},
    {"Dp2PerToken", 2, "--micro-batch-size 1 --calculate-per-token-loss"},
    {"Ep2", 2, "--expert-model-parallel-size 2 --micro-batch-size 1 --calculate-per-token-loss"},
    {"Ep2Exchange", 2,
     "--expert-model-parallel-size 2 --micro-batch-size 1 --calculate-per-token-loss "
     "--moe-token-dispatcher-type alltoall"},
    {"Tp2SpEp2Etp1", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1"},
    {"Tp2SpEp2Etp1Exchange", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1 --moe-token-dispatcher-type alltoall"},
    {"Tp2SpEp2Etp2", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --micro-batch-size 1 "
     "--calculate-per-token-loss"},
    {"Tp2SpEp2Etp2Exchange", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --micro-batch-size 1 "
     "--calculate-per-token-loss --moe-token-dispatcher-type alltoall"},
    {"Tp2SpPp2Ep2Etp1", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1 --moe-token-dispatcher-type alltoall"}};

/// Layouts of encoder-decoder models; one stage holds layers of both.
constexpr Layout kHfEncoderLayouts[] = {
    {"Tp1", 1, ""},
    {"Tp2", 2, "--tensor-model-parallel-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Tp4Sp", 4, "--tensor-model-parallel-size 4 --sequence-parallel"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2"},
    {"Pp3LayersOfBothInOne", 3, "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ee|et|tL"},
    {"Dp2PerToken", 2, "--micro-batch-size 1 --calculate-per-token-loss"},
    {"Tp2SpPp4", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 4 --micro-batch-size 1 "
     "--calculate-per-token-loss"}};
/// Layouts of bidirectional models.
constexpr Layout kMaskedLayouts[] = {
    {"Pp2Virtual2", 2,
     "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|t|t|L --micro-batch-size 1 "
     "--calculate-per-token-loss"},
    {"Pp2ZbH1", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 "
     "--calculate-per-token-loss"},
    {"Pp2ZbV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --pipeline-model-parallel-layout E|t|t|L "
     "--micro-batch-size 1 --calculate-per-token-loss"},
    {"Recomputed", 1, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}};
/// Context parallelism, split backward and recomputation; two model chunks, two micro-batches.
constexpr Layout kHfMoreLayouts[] = {
    {"Cp2", 2, "--context-parallel-size 2"},
    {"Cp2AllGather", 2, "--context-parallel-size 2 --cp-comm-type all_gather"},
    {"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a"},
    {"Cp4A2aP2p", 4,
     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
    {"Cp2Pp2", 4, "--context-parallel-size 2 --pipeline-model-parallel-size 2"},
    {"Pp2Virtual2", 2,
     "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|t|t|L --micro-batch-size 1 "
     "--calculate-per-token-loss"},
    {"Pp2ZbH1", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 "
     "--calculate-per-token-loss"},
    {"Pp2ZbV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --pipeline-model-parallel-layout E|t|t|L "
     "--micro-batch-size 1 --calculate-per-token-loss"},
    {"Recomputed", 1, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}};

/// Length of the labels, padded to divide by the tensor-parallel size.
constexpr std::int64_t kDecoderLength = 20;

class HfParity : public testing::TestWithParam<std::tuple<std::string, Layout>> {
 protected:
  void SetUp() override {
    const std::string flags = std::get<1>(GetParam()).flags;
    const auto config = nlohmann::json::parse(read_file(folder() + "/config.json"));
    const int experts = config.value("num_experts", config.value("moe_num_experts", 0));
    if (flags.find("--expert-model-parallel-size 2") != std::string::npos && experts % 2 != 0)
      GTEST_SKIP() << "two ranks cannot share " << experts << " experts";
  }
  [[nodiscard]] static std::string folder() {
    return test::vectors() + "/" + test::recorded_folder(std::get<0>(GetParam()));
  }
  [[nodiscard]] static test::Tolerance tolerance() { return test::tolerance_of(std::get<0>(GetParam())); }
  /// The checkpoint with the names of its family.
  [[nodiscard]] static checkpoint::CheckpointReader weights() { return convert::open_hugging_face(folder()); }
  [[nodiscard]] static config::Run settings() {
    const Layout& layout = std::get<1>(GetParam());
    const auto flags = test::words(
                           "--micro-batch-size 2 --global-batch-size 2 --seq-length 32 --hidden-dropout 0 "
                           "--attention-dropout 0 --device ") +
                       test::words(test::device_flag()) + test::words(layout.flags);
    const std::string file = folder() + "/config.json";
    const auto config = nlohmann::json::parse(read_file(file));
    const test::ModelKind kind = test::kind_of(config);
    const bool uneven = std::string(layout.flags) == "--pipeline-model-parallel-size 2" &&
                        config.value("num_hidden_layers", 0) % 2 != 0;
    const auto more =
        test::words(kind == test::ModelKind::kEncoder
                        ? fmt::format("t5 --decoder-seq-length {} --vocab-extra-ids 9", kDecoderLength)
                        : std::string(kind == test::ModelKind::kMasked ? "bert" : ""));
    const auto split = test::words(uneven ? "--decoder-last-pipeline-num-layers 1" : "");
    return test::settings(layout.world, flags + more + split, [&](config::Run& run) {
      config::fill(run, models::hf::settings_of(config, file), file);
    });
  }

  /// Decoder inputs are the labels shifted right after id 0, with 0 for ignored labels.
  [[nodiscard]] tensor::Batch encoder_batch(const Tensor& tokens, const Tensor& given,
                                            std::int64_t first) const {
    const Tensor mask = vectors_.view("in.attention_mask").to(at::kLong).narrow(0, first, tokens.size(0));
    Tensor labels = at::full({tokens.size(0), kDecoderLength}, -100, at::kLong);
    labels.narrow(1, 0, given.size(1)).copy_(given);
    Tensor inputs = at::zeros_like(labels);
    inputs.narrow(1, 1, kDecoderLength - 1).copy_(labels.narrow(1, 0, kDecoderLength - 1).clamp_min(0));
    return tensor::Batch({{Field::kEncoderTokens, tokens.to(test::device())},
                          {Field::kEncoderPadding, (mask == 0).to(test::device())},
                          {Field::kTokens, inputs.to(test::device())},
                          {Field::kLabels, labels.to(test::device())},
                          {Field::kLossMask, (labels >= 0).to(test::device(), at::kFloat)}});
  }

  [[nodiscard]] tensor::Batch masked_batch(const Tensor& tokens, const Tensor& labels,
                                           std::int64_t first) const {
    const auto rows = [&](const char* name) {
      return vectors_.view(name).to(at::kLong).narrow(0, first, tokens.size(0)).to(test::device());
    };
    return tensor::Batch({{Field::kTokens, tokens.to(test::device())},
                          {Field::kTokenTypes, rows("in.token_type_ids")},
                          {Field::kPadding, rows("in.attention_mask") == 0},
                          {Field::kLabels, labels.to(test::device())},
                          {Field::kLossMask, (labels >= 0).to(test::device(), at::kFloat)}});
  }

  const checkpoint::SafetensorsFile vectors_{folder() + "/vectors.safetensors"};

  [[nodiscard]] double number(const std::string& name) const { return vectors_.view(name).item<double>(); }

  /// Names in the vectors of the gradients that the loss has, by the names of the family.
  [[nodiscard]] std::map<std::string, std::string> recorded_gradients() const {
    constexpr std::string_view kNorm = "grad_norm.";
    const auto without = test::names_without_gradient(std::get<0>(GetParam()));
    models::hf::StoredShapes shapes;
    for (const auto& [name, info] : vectors_.tensors())
      if (name.starts_with(kNorm) && !without.contains(name.substr(kNorm.size())))
        shapes[name.substr(kNorm.size())] = {1};
    const auto config = nlohmann::json::parse(read_file(folder() + "/config.json"));
    std::map<std::string, std::string> names;
    for (const auto& [name, tensor] :
         models::hf::spelled_tensors(models::hf::model_type_of(config), shapes, folder()))
      names[name] = tensor.stored;
    std::vector<std::string> all;
    for (const auto& [name, stored] : names) all.push_back(name);
    for (const auto& [kind, unread] : models::hf::tensor_diff(settings().model, all).unused)
      for (const std::string& name : unread) names.erase(name);
    return names;
  }

  /// This context rank's shard of x [b, s, ...].
  [[nodiscard]] static Tensor context_shard_of(const Tensor& x, const Job& job) {
    std::vector<Tensor> own;
    for (const layout::TokenSpan& chunk : layout::context_chunks(
             x.size(1), job.ranks.coord(layout::Axis::kCp), job.run.parallel.context_parallel_size))
      own.push_back(x.narrow(1, chunk.begin, chunk.length));
    return at::cat(own, 1);
  }

  /// Transformers compares the logits of token t with label t + 1.
  [[nodiscard]] pipeline::Steps steps(const Job& job) const {
    pipeline::Steps steps = test::steps_after(job, 0);
    steps.batch = [this, &job](int microbatch) {
      const auto size = job.run.training.micro_batch_size;
      const auto first = (microbatch * job.data_ranks() + job.data_rank()) * size;
      const Tensor tokens = vectors_.view("in.input_ids").to(at::kLong).narrow(0, first, size);
      const Tensor given = vectors_.view("in.labels").to(at::kLong).narrow(0, first, size);
      if (config::has_several_stacks(job.run.model)) return encoder_batch(tokens, given, first);
      if (job.run.model.bidirectional) return masked_batch(tokens, given, first);
      Tensor labels = at::full_like(given, -100);
      labels.narrow(1, 0, 31).copy_(given.narrow(1, 1, 31));
      return context_shard(tensor::Batch({{Field::kTokens, tokens.to(test::device())},
                                          {Field::kLabels, labels.to(test::device())},
                                          {Field::kLossMask, (labels >= 0).to(test::device(), at::kFloat)}}),
                           job.ranks.coord(layout::Axis::kCp), job.run.parallel.context_parallel_size);
    };
    return steps;
  }
};

/// Unsharded gradients by Hugging Face names, assembled from all ranks.
class Gradients {
 public:
  /// The job's gradients are `scale` times those of the mean loss.
  void add(Job& job, double scale) {
    const std::lock_guard lock(mutex_);
    for (tensor::Parameter* p : job.parameters()) {
      if (!p->spec.trained) continue;
      Tensor& whole = whole_[p->spec.name];
      if (!whole.defined()) whole = at::zeros(p->spec.shape, at::kDouble);
      specs_.emplace(p->spec.name, p->spec);
      const Tensor flat = p->main_grad.reshape({-1}).cpu() / scale;
      const bool first = job.buffers().groups().replicas(p->spec.param_group).is_first();
      for (const auto& slice : convert::state_slices(p->spec.name, *p, 0, flat, first)) {
        Tensor box = whole;
        for (std::size_t d = 0; d < slice.offset.size(); ++d)
          box = box.narrow(static_cast<std::int64_t>(d), slice.offset[d],
                           slice.data.size(static_cast<std::int64_t>(d)));
        if (slice.owner) box.copy_(slice.data);
      }
    }
    naming_ = models::hf::naming_of(job.run.model);
  }
  [[nodiscard]] std::map<std::string, Tensor> by_hf_names() const {
    std::map<std::string, Tensor> all;
    for (const auto& [name, whole] : whole_)
      for (const auto& tensor : models::hf::tensors_of(specs_.at(name), naming_)) {
        const Tensor part = tensor.index ? whole[*tensor.index] : whole;
        const Tensor rows = part.narrow(0, tensor.first_row, tensor.rows);
        all[tensor.name] = (tensor.transposed ? rows.transpose(-2, -1) : rows).contiguous();
      }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> whole_;
  std::map<std::string, layout::ParamSpec> specs_;
  std::optional<models::hf::Naming> naming_;
};

TEST_P(HfParity, LogitsLossAndGradients) {
  Gradients gradients;
  const config::Run run = settings();
  const test::Tolerance allowed = tolerance();
  const Tensor logits = vectors_.view("logits");
  const Tensor labels = vectors_.view("in.labels");
  // A GPT does not predict its first token.
  const std::int64_t first_label = config::has_several_stacks(run.model) || run.model.bidirectional ? 0 : 1;
  const double tokens =
      (labels.narrow(1, first_label, labels.size(1) - first_label) >= 0).sum().item<double>();
  double norm_of_step = 0;
  test::on_jobs(run, [&](Job& job) {
    restore(job, weights(), Restore::kWeights);
    for (const tensor::Parameter* p : job.parameters()) {
      const bool expert = p->spec.param_group == layout::ParamGroup::kExpert;
      const bool sharded = p->spec.sharded_dim(layout::Axis::kEtp) != nullptr;
      const int shards =
          run.parallel.expert_model_parallel_size * (sharded ? run.parallel.expert_tensor_size() : 1);
      EXPECT_TRUE(!expert || p->spec.numel() == p->shard.numel() * shards) << p->spec.name;
    }
    job.executor().evaluate(steps(job), tensor::Output::kLogits, [&](int microbatch, const Tensor& got) {
      const auto first = (microbatch * job.data_ranks() + job.data_rank()) * got.size(0);
      const Tensor expected = context_shard_of(logits.narrow(0, first, got.size(0)), job);
      EXPECT_TRUE(at::allclose(got.cpu().narrow(1, 0, expected.size(1)), expected,
                               /*rtol=*/1e-4, /*atol=*/allowed.logits));
    });
    const auto evaluated = job.evaluate(1, [&](int) { return steps(job); });
    EXPECT_NEAR(evaluated.at("lm_loss"), number("loss"), allowed.loss * number("loss"));
    const auto report = job.train_step(steps(job), {.learning_rate = 1e-3});
    EXPECT_NEAR(report.losses.at("lm_loss"), number("loss"), allowed.loss * number("loss"));
    // With per-token loss, the optimizer divides by the number of tokens.
    gradients.add(job, run.training.calculate_per_token_loss ? tokens : 1);
    if (job.ranks.rank() == 0) norm_of_step = report.optimizer.grad_norm;
  });

  const auto all = gradients.by_hf_names();
  const auto recorded = recorded_gradients();
  EXPECT_EQ(all.size(), recorded.size());
  double squares = 0;
  for (const auto& [name, grad] : all) {
    const std::string& stored = recorded.at(name);
    const double norm = number("grad_norm." + stored);
    squares += norm * norm;
    if (norm <= 1e-6) continue;
    EXPECT_NEAR(grad.norm().item<double>(), norm, allowed.gradient * norm) << name;
    const Tensor probe = (at::arange(grad.numel(), at::kDouble) * 0.37 + 0.1).cos();
    const double bound = allowed.gradient_dot * norm * std::sqrt(static_cast<double>(grad.numel()));
    EXPECT_NEAR(grad.view(-1).dot(probe).item<double>(), number("grad_dot." + stored), bound) << name;
  }
  EXPECT_NEAR(norm_of_step, std::sqrt(squares), allowed.gradient * std::sqrt(squares));
}

/// Further test of the same parameters.
class HfRewritten : public HfParity {};

TEST_P(HfRewritten, HasTheSameBits) {
  const TempFolder output;
  std::filesystem::path step;
  test::on_jobs(settings(), [&](Job& job) {
    restore(job, weights(), Restore::kWeights);
    const auto saved = save(job, output);
    if (job.ranks.rank() == 0) step = saved.folder;
  });
  const auto given = weights(), written = checkpoint::CheckpointReader::open_hugging_face(step);
  const auto diff = models::hf::tensor_diff(settings().model, written.names());
  EXPECT_TRUE(diff.unknown.empty() && diff.missing.empty());
  for (const std::string& name : written.names()) {
    if (name.starts_with("optimizer.")) continue;
    ASSERT_TRUE(given.has(name)) << name;
    EXPECT_TRUE(at::equal(written.read(name), given.read(name))) << name;
  }
}

std::string name_of(const testing::TestParamInfo<HfParity::ParamType>& info) {
  return test::test_name(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Models, HfParity,
                         testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kDense})),
                                          testing::ValuesIn(kHfLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MoreLayouts, HfParity,
                         testing::Combine(testing::Values("llama", "qwen2", "qwen3", "gemma2", "gemma3_text",
                                                          "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"),
                                          testing::ValuesIn(kHfMoreLayouts)),
                         name_of);
/// Layouts of the further families.
constexpr Layout kFurtherLayouts[] = {{"Tp1", 1, ""},
                                      {"Tp2", 2, "--tensor-model-parallel-size 2"},
                                      {"Pp2", 2, "--pipeline-model-parallel-size 2"}};
constexpr Layout kFurtherExpertLayouts[] = {
    {"Tp1", 1, ""},
    {"Tp2SpEtp2", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2"},
    {"Ep2", 2, "--expert-model-parallel-size 2 --micro-batch-size 1 --calculate-per-token-loss"}};
/// Norms over all heads, also of key heads that two ranks hold, LongRoPE and layers without norms on inputs.
constexpr Layout kNormLayouts[] = {
    {"Tp4Sp", 4, "--tensor-model-parallel-size 4 --sequence-parallel"},
    {"Cp2", 2, "--context-parallel-size 2"},
    {"Tp2SpPp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Recomputed", 1, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}};

INSTANTIATE_TEST_SUITE_P(Further, HfParity,
                         testing::Combine(testing::ValuesIn(test::further_models({test::ModelKind::kDense})),
                                          testing::ValuesIn(kFurtherLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    FurtherMoe, HfParity,
    testing::Combine(testing::ValuesIn(test::further_models({test::ModelKind::kExperts})),
                     testing::ValuesIn(kFurtherExpertLayouts)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Dense, HfRewritten,
                         testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kDense}) +
                                                            test::further_models({test::ModelKind::kDense})),
                                          testing::ValuesIn(kFurtherLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Moe, HfRewritten,
    testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kExperts}) +
                                       test::further_models({test::ModelKind::kExperts})),
                     testing::ValuesIn(kFurtherExpertLayouts)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Norms, HfParity,
                         testing::Combine(testing::Values("hf_more/olmo2", "hf_more/minimax_m2",
                                                          "hf_more/phi3"),
                                          testing::ValuesIn(kNormLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Encoders, HfParity,
    testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kEncoder})),
                     testing::ValuesIn(kHfEncoderLayouts)),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Masked, HfParity,
    testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kMasked})),
                     testing::ValuesIn(kHfLayouts)),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    MaskedMoreLayouts, HfParity,
    testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kMasked})),
                     testing::ValuesIn(kMaskedLayouts)),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Moe, HfParity,
    testing::Combine(testing::ValuesIn(test::recorded_models({test::ModelKind::kExperts})),
                     testing::ValuesIn(kHfExpertLayouts)),
    name_of);

}  // namespace
}  // namespace colonnade::job
