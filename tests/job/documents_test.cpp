// Packed documents, from files through data and model to the loss: with reset positions and attention each
// document trains as if alone; --eod-mask-loss removes the loss at document ends; with per-token loss every
// token has the same weight.
#include "checkpoint/fixtures.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using test::operator+;
using checkpoint::test::TempFolder;

constexpr std::int64_t kEod = 32;
constexpr std::int64_t kIdsOfADocument = 8;
constexpr std::int64_t kLength = 24;  // tokens per sample
constexpr const char* kDocumentModel =
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 33 --max-position-embeddings 24 "
    "--init-method-std 0.4 --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 ";
constexpr const char* kReset = "--reset-position-ids --reset-attention-mask ";

/// Document `number` with `length` tokens: eight ids of its own, and the end of document.
std::vector<std::int32_t> document(std::int64_t number, std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i + 1 < length; ++i)
    ids.push_back(
        static_cast<std::int32_t>(number * kIdsOfADocument + (number + i * i * i + i / 3) % kIdsOfADocument));
  ids.push_back(kEod);
  return ids;
}

using Text = std::vector<std::int32_t>;
Text operator+(Text a, const Text& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Dataset of samples of `length` tokens from a text, and runs over it.
class Data {
 public:
  Data(const Text& text, std::int64_t length) : Data(std::vector<Text>{text}, length) {}
  Data(const std::vector<Text>& sequences, std::int64_t length) : length_(length) {
    data::IndexedDatasetBuilder builder((folder_.path() / "text").string(), data::TokenType::kUint16);
    for (const Text& text : sequences)
      builder.add_document(text, std::array{static_cast<std::int32_t>(text.size())});
    builder.finalize();
  }

  [[nodiscard]] config::Run run(int world, const std::string& flags) const {
    const auto words =
        test::words(fmt::format("{}--seq-length {} --no-mock-data {}", kDocumentModel, length_, flags));
    return test::settings(world, words, [this](config::Run& run) {
      run.data.data_path = {(folder_.path() / "text").string()};
      run.data.split = "1,0,0";
      run.data.data_cache_path = (folder_.path() / "cache").string();
    });
  }

 private:
  TempFolder folder_;
  std::int64_t length_;
};

/// Document lengths of the two samples of a step: 9 + 15 tokens, and 14 + 11 with the last label.
constexpr std::array<std::int64_t, 4> kLengths{9, 15, 14, 11};

/// `steps` with a loss on the tokens of one document only; without `document`, unchanged.
pipeline::Steps with_loss_on(std::optional<std::int64_t> document, pipeline::Steps steps) {
  if (document)
    steps.loss = [document](const at::Tensor& output, const tensor::Batch& batch) {
      const at::Tensor owner = batch.at(tensor::Field::kTokens).div(kIdsOfADocument, "floor");
      const std::int64_t all = kLengths.at(static_cast<std::size_t>(*document)) - 1;
      return token_loss(output,
                        tensor::Batch({{tensor::Field::kLossMask, (owner == *document).to(at::kFloat)},
                                       {tensor::Field::kLossCount, at::full({}, all, at::kFloat)}}),
                        false);
    };
  return steps;
}

/// Curve of `count` steps over the data, with a loss on all documents or on one; `dtypes` as in Job.
test::Curve train_on(const config::Run& run, int count, std::optional<std::int64_t> document = {},
                     const std::optional<config::Dtypes>& dtypes = {}) {
  const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 33, .eod = kEod});
  test::Curve curve;
  test::on_jobs(
      run,
      [&](Job& job) {
        const auto first = [&](int) { return with_loss_on(document, evaluation_steps(*data[0], job, 0)); };
        const double evaluated = job.evaluate(1, first).at("lm_loss");
        TokenStream stream(*data[0], job, 0);
        test::Curve mine;
        for (int i = 0; i < count; ++i) {
          const auto report = job.train_step(with_loss_on(document, stream.next()),
                                             {.learning_rate = 1e-2, .weight_decay = 0});
          mine.loss.push_back(report.losses.at("lm_loss"));
          mine.grad_norm.push_back(report.optimizer.grad_norm);
        }
        EXPECT_NEAR(mine.loss[0], evaluated, 1e-6 * evaluated)
            << "evaluation and training compute the same loss";
        if (job.ranks.rank() == 0) curve = mine;
      },
      dtypes);
  return curve;
}

/// Samples of two packed documents, two per micro-batch.
struct Packed {
  Data data{document(0, 9) + document(1, 15) + document(2, 14) + document(3, 11), kLength};
  [[nodiscard]] config::Run run(const std::string& flags, int world = 1) const {
    return data.run(world, "--micro-batch-size 2 --global-batch-size 2 --train-iters 1 " + flags);
  }
};

test::Curve alone(std::int64_t number) {
  const std::int64_t length = kLengths.at(static_cast<std::size_t>(number));
  const Data data(document(number, length), length - 1);
  return train_on(data.run(1, "--micro-batch-size 1 --global-batch-size 1 --train-iters 1"), 1);
}

TEST(Documents, TrainAsIfAloneWithResetPositionsAndAttention) {
  const Packed packed;
  for (const test::Layout& layout :
       {test::Layout{"One", 1, ""}, test::Layout{"Pp2", 2, "--pipeline-model-parallel-size 2"},
        test::Layout{"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
        test::Layout{"Cp2", 2, "--context-parallel-size 2"},
        test::Layout{"Cp4EveryKind", 4,
                     "--context-parallel-size 4 --cp-comm-type a2a+p2p all_gather "
                     "--hierarchical-context-parallel-sizes 2 2"},
        test::Layout{"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a"}})
    for (const std::int64_t number : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} document {}", layout.name, number));
      const test::Curve expected = alone(number);
      const test::Curve got =
          train_on(packed.run(fmt::format("{}{}", kReset, layout.flags), layout.world), 1, number);
      EXPECT_NEAR(got.loss[0], expected.loss[0], 1e-5 * expected.loss[0]);
      EXPECT_NEAR(got.grad_norm[0], expected.grad_norm[0], 1e-4 * expected.grad_norm[0]);
    }
}

TEST(Documents, DependOnEarlierDocumentsWithoutBothResets) {
  const Packed packed;
  for (const std::int64_t number : {1, 3})
    for (const char* flags : {"", "--reset-position-ids", "--reset-attention-mask"})
      EXPECT_GT(std::abs(train_on(packed.run(flags), 1, number).loss[0] / alone(number).loss[0] - 1), 1e-3)
          << flags << " document " << number;
}

/// Sequences of the data; without `ends` their last token is not an end of document.
std::vector<Text> sequences(bool ends) {
  std::vector<Text> all;
  for (std::int64_t i = 0; i < 24; ++i) {
    all.push_back(document(i % 4, 3 + i * 5 % 14));
    if (!ends) all.back().back() = 7;
  }
  return all;
}

TEST(Documents, InterDocumentMaskingSeparatesSequencesAsResetsSeparateEnds) {
  const std::string flags = "--micro-batch-size 2 --global-batch-size 4 --train-iters 2 ";
  const auto curve = [&](bool ends, const test::Layout& layout, const std::string& how) {
    return train_on(Data(sequences(ends), kLength).run(layout.world, flags + layout.flags + how), 2).loss;
  };
  for (const test::Layout& layout :
       {test::Layout{"One", 1, ""}, test::Layout{"Cp2", 2, "--context-parallel-size 2 "},
        test::Layout{"Pp2Dp2", 4, "--pipeline-model-parallel-size 2 "}}) {
    SCOPED_TRACE(layout.name);
    EXPECT_EQ(curve(true, layout, "--dataloader-inter-document-masking"), curve(true, layout, kReset));
  }
  const test::Layout one{"One", 1, ""};
  const double masked = curve(false, one, "--dataloader-inter-document-masking")[0];
  EXPECT_GT(std::abs(curve(false, one, kReset)[0] - masked), 1e-4) << "ends are needed by resets only";
}

TEST(Documents, EodMaskLossRemovesTheLossAtEnds) {
  const Packed packed;
  double sum = 0, tokens = 0;
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    const auto predicted = static_cast<double>(kLengths.at(i) - 1);
    sum += predicted * alone(static_cast<std::int64_t>(i)).loss[0];
    tokens += predicted;
  }
  const double without = train_on(packed.run(fmt::format("{}--eod-mask-loss", kReset)), 1).loss[0];
  EXPECT_NEAR(without, sum / tokens, 1e-5 * without);
  EXPECT_GT(std::abs(train_on(packed.run(kReset), 1).loss[0] - without), 1e-3)
      << "ends have a loss without the flag";
}

// In float64: for elements with a gradient near zero, three Adam steps amplify rounding to the size of the
// learning rate, in fp32 up to 3e-5 of the loss.
TEST(PerTokenLoss, IsTheMeanOverTheTokensOfTheGlobalBatch) {
  const auto curve_of = [](const config::Run& run, int count) {
    return train_on(run, count, {}, test::kFloat64);
  };
  // Samples with 12, 6, 3 or 1 document ends: ranks have different numbers of loss tokens.
  Text text;
  for (const std::int64_t length : {2, 4, 8, 24})
    for (std::int64_t i = 0; i < kLength / length; ++i) text = text + document(i % 4, length);
  text.push_back(1);
  const Data data(text, kLength);
  const std::string flags = "--global-batch-size 4 --train-iters 3 --eod-mask-loss ";
  // With all samples in one micro-batch, its mean is the per-token mean without the flag.
  const test::Curve whole = curve_of(data.run(1, flags + "--micro-batch-size 4"), 3);
  const std::string one_each = flags + "--micro-batch-size 1 ";
  const double unweighted = curve_of(data.run(1, one_each), 1).grad_norm[0];
  EXPECT_GT(std::abs(unweighted / whole.grad_norm[0] - 1), 1e-2)
      << "samples with few loss tokens have the weight of others";
  for (const test::Layout& layout :
       {test::Layout{"One", 1, ""}, test::Layout{"Dp2", 2, ""}, test::Layout{"Dp4", 4, ""},
        test::Layout{"Dp2Distributed", 2, "--use-distributed-optimizer --overlap-grad-reduce"},
        test::Layout{"Tp2SpDp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel"},
        test::Layout{"Pp2Dp2", 4, "--pipeline-model-parallel-size 2"}}) {
    SCOPED_TRACE(layout.name);
    const test::Curve got =
        curve_of(data.run(layout.world, one_each + "--calculate-per-token-loss " + layout.flags), 3);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(got.loss[i], whole.loss[i], 1e-9 * whole.loss[i]) << "step " << i + 1;
      EXPECT_NEAR(got.grad_norm[i], whole.grad_norm[i], 1e-9 * whole.grad_norm[i]) << "step " << i + 1;
    }
  }
}

}  // namespace
}  // namespace colonnade::job
