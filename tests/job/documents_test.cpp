// Documents that share a sample, from files through the data, the model and the loss: with positions and
// attention that start anew each is trained as it is alone; the ends of documents count for nothing where
// asked; and a token weighs the same wherever it is.
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
constexpr std::int64_t kLength = 24;  // of a sample
constexpr const char* kDocumentModel =
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 33 --max-position-embeddings 24 "
    "--init-method-std 0.4 --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 ";
constexpr const char* kAnew = "--reset-position-ids --reset-attention-mask ";

/// Document `number`, of eight ids that no other has, and its end: `length` tokens.
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

/// Samples of `length` tokens cut from a text, and runs over them.
class Data {
 public:
  Data(const Text& text, std::int64_t length) : length_(length) {
    data::IndexedDatasetBuilder builder((folder_.path() / "text").string(), data::TokenType::kUint16);
    const auto size = static_cast<std::int32_t>(text.size());
    builder.add_document(text, std::array{size});
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

/// Lengths of the documents of the two samples of a step: 9 + 15 tokens, and 14 + 11 with the last label.
constexpr std::array<std::int64_t, 4> kLengths{9, 15, 14, 11};

/// `steps` in which only the tokens of one document count; without one, those that the run says.
pipeline::Steps counting(std::optional<std::int64_t> document, pipeline::Steps steps) {
  if (document)
    steps.loss = [document](const at::Tensor& output, const tensor::Batch& batch) {
      const at::Tensor owner = batch.at("tokens").div(kIdsOfADocument, "floor");
      const std::int64_t all = kLengths.at(static_cast<std::size_t>(*document)) - 1;
      return token_loss(output,
                        tensor::Batch({{"loss_mask", (owner == *document).to(at::kFloat)},
                                       {"loss_count", at::full({}, all, at::kFloat)}}),
                        false);
    };
  return steps;
}

/// The curve of `count` steps over the data, of the tokens of all documents or of one; `type` as in Job.
test::Curve train_on(const config::Run& run, int count, std::optional<std::int64_t> document = {},
                     std::optional<at::ScalarType> type = {}) {
  const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 33, .eod = kEod});
  test::Curve curve;
  test::on_jobs(
      run,
      [&](Job& job) {
        const auto first = [&](int) { return counting(document, evaluation_steps(*data[0], job, 0)); };
        const double evaluated = job.evaluate(1, first).at("lm_loss");
        TokenStream stream(*data[0], job, 0);
        test::Curve mine;
        for (int i = 0; i < count; ++i) {
          const auto report =
              job.train_step(counting(document, stream.next()), {.learning_rate = 1e-2, .weight_decay = 0});
          mine.loss.push_back(report.losses.at("lm_loss"));
          mine.grad_norm.push_back(report.optimizer.grad_norm);
        }
        EXPECT_NEAR(mine.loss[0], evaluated, 1e-6 * evaluated) << "an evaluation sees what training sees";
        if (job.ranks.rank() == 0) curve = mine;
      },
      type);
  return curve;
}

/// Samples of two documents each, two in a micro-batch.
struct Shared {
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

TEST(Documents, AreAsAloneWherePositionsAndAttentionStartAnew) {
  const Shared shared;
  for (const test::Layout& layout :
       {test::Layout{"One", 1, ""}, test::Layout{"Pp2", 2, "--pipeline-model-parallel-size 2"},
        test::Layout{"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
        test::Layout{"Cp2", 2, "--context-parallel-size 2"},
        test::Layout{"Cp4EachWay", 4,
                     "--context-parallel-size 4 --cp-comm-type a2a+p2p all_gather "
                     "--hierarchical-context-parallel-sizes 2 2"},
        test::Layout{"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a"}})
    for (const std::int64_t number : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} document {}", layout.name, number));
      const test::Curve expected = alone(number);
      const test::Curve got =
          train_on(shared.run(fmt::format("{}{}", kAnew, layout.flags), layout.world), 1, number);
      EXPECT_NEAR(got.loss[0], expected.loss[0], 1e-5 * expected.loss[0]);
      EXPECT_NEAR(got.grad_norm[0], expected.grad_norm[0], 1e-4 * expected.grad_norm[0]);
    }
}

TEST(Documents, FeelTheOnesBeforeThemOtherwise) {
  const Shared shared;
  for (const std::int64_t number : {1, 3})
    for (const char* flags : {"", "--reset-position-ids", "--reset-attention-mask"})
      EXPECT_GT(std::abs(train_on(shared.run(flags), 1, number).loss[0] / alone(number).loss[0] - 1), 1e-3)
          << flags << " document " << number;
}

TEST(Documents, EndsCountForNothingWhereAsked) {
  const Shared shared;
  double sum = 0, tokens = 0;
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    const auto predicted = static_cast<double>(kLengths.at(i) - 1);
    sum += predicted * alone(static_cast<std::int64_t>(i)).loss[0];
    tokens += predicted;
  }
  const double without = train_on(shared.run(fmt::format("{}--eod-mask-loss", kAnew)), 1).loss[0];
  EXPECT_NEAR(without, sum / tokens, 1e-5 * without);
  EXPECT_GT(std::abs(train_on(shared.run(kAnew), 1).loss[0] - without), 1e-3) << "ends count unless asked";
}

// In float64: three of Adam's steps make differences of elements whose gradient is all but zero as large as
// the learning rate, in fp32 up to 3e-5 of the loss.
TEST(PerTokenLoss, IsTheMeanOverTheTokensOfTheGlobalBatch) {
  const auto curve_of = [](const config::Run& run, int count) {
    return train_on(run, count, {}, at::kDouble);
  };
  // Samples with 12, 6, 3 or 1 ends of documents: ranks have different numbers of tokens that count.
  Text text;
  for (const std::int64_t length : {2, 4, 8, 24})
    for (std::int64_t i = 0; i < kLength / length; ++i) text = text + document(i % 4, length);
  text.push_back(1);
  const Data data(text, kLength);
  const std::string flags = "--global-batch-size 4 --train-iters 3 --eod-mask-loss ";
  // The mean of one micro-batch that holds them all needs no flag.
  const test::Curve whole = curve_of(data.run(1, flags + "--micro-batch-size 4"), 3);
  const std::string one_each = flags + "--micro-batch-size 1 ";
  const double unweighted = curve_of(data.run(1, one_each), 1).grad_norm[0];
  EXPECT_GT(std::abs(unweighted / whole.grad_norm[0] - 1), 1e-2) << "samples of few tokens weigh as others";
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
