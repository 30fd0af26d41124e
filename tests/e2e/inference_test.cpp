// The verbs evaluate and generate from the user's side: recorded logits, text in any layout, bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kLlama = test::vectors() + "/hf/llama";

/// A tensor as stored in a safetensors file.
struct Tensor {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

std::string safetensors(const std::vector<Tensor>& tensors) {
  json header;
  std::string data;
  for (const Tensor& t : tensors) {
    header[t.name] = {
        {"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + text + data;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::int32_t> recorded(const std::string& name, const std::string& model = kLlama) {
  return read_tensor<std::int32_t>(model + "/vectors.safetensors", name);
}

Words evaluate(const fs::path& tokens, const Words& more = {}) {
  return Words{"evaluate", "--load", kLlama, "--tokens", tokens.string()} + more;
}
Words generate(const Words& more) { return Words{"generate", "--load", kLlama} + more; }

const Words kTp2 = {"--tensor-model-parallel-size", "2"};
const Words kPp2 = {"--pipeline-model-parallel-size", "2"};

/// Tolerances of the vectors' manifest.
void expect_recorded_logits(const fs::path& file, const std::string& model = kLlama) {
  const auto logits = read_tensor<float>(file, "logits");
  const auto expected = read_tensor<float>(model + "/vectors.safetensors", "logits");
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], expected[i], 4e-5 + 1e-4 * std::fabs(expected[i])) << i;
  const float loss = read_tensor<float>(model + "/vectors.safetensors", "loss").at(0);
  EXPECT_NEAR(read_tensor<float>(file, "loss").at(0), loss, 1e-5 * loss);
}

// The length of the tokens selects the factors, also where no sequence length is given.
TEST(Inference, EvaluateReadsLongRopeAndQuantizedWeights) {
  for (const char* name : {"phi3", "phi3_short", "qwen3_fp8", "gpt_oss_mxfp4"}) {
    const std::string model = test::vectors() + "/hf_more/" + name;
    const TempFolder folder;
    write_text(folder / "tokens",
               safetensors({{"input_ids", "I32", {2, 32}, bytes_of(recorded("in.input_ids", model))},
                            {"labels", "I32", {2, 32}, bytes_of(recorded("in.labels", model))}}));
    const fs::path out = folder / "out.safetensors";
    const Result result = run(colonnade({"evaluate", "--load", model, "--tokens",
                                         (folder / "tokens").string(), "--logits-out", out.string()}));
    ASSERT_EQ(result.code, 0) << result.text;
    expect_recorded_logits(out, model);
  }
}

TEST(Inference, EvaluateWritesTheRecordedLogitsInEveryLayout) {
  const TempFolder folder;
  write_text(folder / "tokens",
             safetensors({{"input_ids", "I32", {2, 32}, bytes_of(recorded("in.input_ids"))},
                          {"labels", "I32", {2, 32}, bytes_of(recorded("in.labels"))}}));
  const fs::path out = folder / "out.safetensors";
  const Words words = evaluate(folder / "tokens", {"--logits-out", out.string()});
  const Result alone = run(colonnade(words));
  ASSERT_EQ(alone.code, 0) << alone.text;
  EXPECT_THAT(alone.text, HasSubstr("loss 5.9974"));
  expect_recorded_logits(out);
  for (const Words& layout : {kTp2, kPp2}) {
    fs::remove(out);
    const Result result = run(launch(2, folder.path(), words + layout));
    ASSERT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text, HasSubstr("loss 5.9974"));
    expect_recorded_logits(out);
  }
}

TEST(Inference, ContextRanksReadFullSequencesWithANote) {
  const TempFolder folder;
  write_text(folder / "tokens",
             safetensors({{"input_ids", "I32", {2, 32}, bytes_of(recorded("in.input_ids"))},
                          {"labels", "I32", {2, 32}, bytes_of(recorded("in.labels"))}}));
  const Words words = evaluate(folder / "tokens", {"--context-parallel-size", "2"});
  const Result result = run(launch(2, folder.path(), words));
  ASSERT_EQ(result.code, 0) << result.text;
  const std::string note = "--context-parallel-size: does not shard sequences in inference; got 2";
  EXPECT_THAT(result.text, HasSubstr("loss 5.9974"));
  EXPECT_THAT(result.text, HasSubstr(note));
  EXPECT_EQ(result.text.find(note), result.text.rfind(note)) << "only rank 0 prints it";
}

TEST(Inference, EvaluateGivesLossAndPerplexityOfData) {
  const Result result = run(
      colonnade({"evaluate", "--load", kLlama, "--mock-data", "--seq-length", "32", "--eval-iters", "4"}));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("(4 samples): loss "));
  EXPECT_THAT(result.text, HasSubstr("perplexity "));
  EXPECT_THAT(result.text, HasSubstr("tokens 128"));
}

/// Output before the line with the speed.
std::string generated_text(const Words& words, int ranks = 1) {
  const TempFolder folder;
  const Result result = run(ranks == 1 ? colonnade(words) : launch(ranks, folder.path(), words));
  EXPECT_EQ(result.code, 0) << result.text;
  const auto at = result.text.find("104 310 7");
  return at == std::string::npos ? "" : result.text.substr(at, result.text.find('\n', at) - at);
}

TEST(Inference, GenerateContinuesAPromptEquallyInEveryLayout) {
  const Words words = generate({"--prompt", "104 310 7", "--max-new-tokens", "12", "--temperature", "0.8",
                                "--top-k", "40", "--top-p", "0.9", "--seed", "5"});
  const std::string text = generated_text(words);
  EXPECT_GT(text.size(), std::string("104 310 7").size() + 12);
  EXPECT_EQ(generated_text(words), text);
  EXPECT_EQ(generated_text(words + kTp2, 2), text);
  EXPECT_EQ(generated_text(words + kPp2, 2), text);
  EXPECT_NE(generated_text(words + Words{"--seed", "6"}), text);
}

TEST(Inference, GenerateReadsAPromptFromAFile) {
  const TempFolder folder;
  write_text(folder / "prompt", "104 310 7");
  const Words greedy = {"--max-new-tokens", "4", "--temperature", "0"};
  EXPECT_EQ(generated_text(generate(greedy + Words{"--prompt-file", (folder / "prompt").string()})),
            generated_text(generate(greedy + Words{"--prompt", "104 310 7"})));
}

TEST(Inference, GenerationConfigEndsTextsAndReportsUnsupportedKeys) {
  const TempFolder folder;
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(kLlama) / name, folder / name);
  const auto text = [&](const json& config, const Words& more = {}) {
    write_text(folder / "generation_config.json", config.dump());
    return run(
        colonnade(Words{"generate", "--load", folder.path().string(), "--prompt", "104 310 7"} + more));
  };
  json all = json::array();
  for (int id = 0; id < 320; ++id) all.push_back(id);
  const Result ended = text({{"eos_token_id", all}});
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_EQ(ended.text, "104 310 7\n");
  const Result limited = text({{"eos_token_id", nullptr}, {"max_new_tokens", 3}, {"num_beams", 4}});
  EXPECT_EQ(limited.code, 0) << limited.text;
  EXPECT_THAT(limited.text, HasSubstr("generation_config.json: num_beams is not applied; got 4"));
  const std::string line = limited.text.substr(limited.text.find("104 310 7"));
  EXPECT_EQ(std::count(line.begin(), line.end(), ' '), 5) << "three tokens follow: " << line;
  const Result longer = text({{"eos_token_id", nullptr}, {"max_new_tokens", 3}}, {"--max-new-tokens", "4"});
  EXPECT_EQ(std::count(longer.text.begin(), longer.text.end(), ' '), 6) << "flags override: " << longer.text;
  const Result damaged = text({{"eos_token_id", "</s>"}});
  EXPECT_EQ(damaged.code, 3) << damaged.text;
  EXPECT_THAT(damaged.text, HasSubstr("eos_token_id must be a token id"));
}

/// Expects `words` to end with `code` and one line that contains `part`.
void expect_rejected(const Words& words, int code, const std::string& part) {
  const TempFolder folder;
  const Result result = run(colonnade(words), {}, folder.path());
  EXPECT_EQ(result.code, code) << result.text;
  EXPECT_THAT(result.text, StartsWith("error: "));
  EXPECT_THAT(result.text, HasSubstr(part));
  EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
}

TEST(Inference, InvalidSettingsExitWith2) {
  expect_rejected({"evaluate", "--mock-data"}, 2, "--load or --pretrained-checkpoint");
  expect_rejected({"evaluate", "--load", kLlama, "--mock-data", "--tokns", "x"}, 2, "did you mean --tokens?");
  expect_rejected({"evaluate", "--load", kLlama, "--logits-out", "x"}, 2, "--logits-out needs --tokens");
  expect_rejected({"evaluate", "--load", kLlama, "--mock-data", "--split-name", "dev"}, 2,
                  "train, valid or test");
  expect_rejected({"evaluate", "--load", kLlama}, 2, "data:");
  expect_rejected({"evaluate", "--load", kLlama, "--hidden-size", "128", "--mock-data"}, 2, "--hidden-size");
  expect_rejected(generate({}), 2, "--prompt");
  expect_rejected(generate({"--prompt", "1", "--prompt-file", "x"}), 2, "exactly one of");
  expect_rejected(generate({"--prompt", "1", "--temprature", "1"}), 2, "did you mean --temperature?");
  expect_rejected(generate({"--prompt", "1", "--temperature", "hot"}), 2, "must be a number; got 'hot'");
  expect_rejected(generate({"--prompt", "1", "--top-p", "2"}), 2, "--top-p");
  expect_rejected(generate({"--prompt", "1", "--max-new-tokens", "0"}), 2, "at least 1");
  expect_rejected(generate({"--prompt", "1", "--max-new-tokens", "128"}), 2, "must fit the 128 positions");
}

/// Writes the recorded token rows to a file.
void write_recorded_tokens(const fs::path& file) {
  write_text(file, safetensors({{"input_ids", "I32", {2, 32}, bytes_of(recorded("in.input_ids"))}}));
}

TEST(Inference, LogitsAreWrittenToARegularFileOnly) {
  const TempFolder folder;
  write_recorded_tokens(folder / "tokens");
  const auto refused = [&](const fs::path& file, const std::string& why) {
    expect_rejected(evaluate(folder / "tokens", {"--logits-out", file.string()}), 2, why);
  };
  refused(folder.path(), "--logits-out must name a file that can be written; got " + folder.path().string() +
                             ", which is a folder");
  refused(folder / "none/out", "whose folder does not exist");
  refused(folder / "tokens", "which is an input");
  refused(kLlama + "/config.json", "which belongs to a checkpoint");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  refused(folder / "pipe", "which is not a regular file");
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  write_text(folder / "out", "of an earlier one");
  EXPECT_EQ(run(colonnade(evaluate(folder / "tokens", {"--logits-out", folder / "out"}))).code, 0);
  EXPECT_EQ(read_tensor<float>(folder / "out", "logits").size(), 2U * 32 * 320);
}

TEST(Inference, EveryRankReportsThatLogitsAreNotWritten) {
  const TempFolder folder;
  write_recorded_tokens(folder / "tokens");
  std::string command = "ulimit -f 70; exec";  // files may not grow beyond 70 KiB: the logits have 80
  for (const std::string& word :
       colonnade(evaluate(folder / "tokens", {"--logits-out", folder / "out"}) + kPp2))
    command += " '" + word + "'";
  Variables place{{"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}};
  place["MASTER_PORT"] = free_port();
  const auto rank = [&](const char* number) {
    place["RANK"] = place["LOCAL_RANK"] = number;
    return std::make_unique<Program>(Words{"bash", "-c", command}, place);
  };
  const auto first = rank("0"), last = rank("1");  // the last stage writes, rank 0 prints the loss
  for (Program* program : {first.get(), last.get()}) {
    const Result result = program->finish();
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, HasSubstr("error: --logits-out must be written; got an error: "));
    EXPECT_THAT(result.text, HasSubstr("File too large"));
    EXPECT_THAT(result.text, Not(HasSubstr("perplexity"))) << "reported as if it had succeeded";
  }
}

TEST(Inference, FailedEvaluationLeavesNoFile) {
  const TempFolder folder;
  write_recorded_tokens(folder / "tokens");
  fs::copy(kLlama, folder / "model");
  std::string weights = read_text(folder / "model/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof header);
  std::fill(weights.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), weights.end(), '\xff');
  fs::remove(folder / "model/model.safetensors");
  write_text(folder / "model/model.safetensors", weights);  // NaN
  expect_rejected(
      {"evaluate", "--load", folder / "model", "--tokens", folder / "tokens", "--logits-out", folder / "out"},
      1, "loss must be finite");
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Inference, InvalidDataExitsWith3) {
  const TempFolder folder;
  const fs::path tokens = folder / "tokens";
  expect_rejected(evaluate(tokens), 3, tokens.string());
  write_text(tokens, safetensors({{"input_ids", "F32", {1, 2}, bytes_of(std::vector<float>{1, 2})}}));
  expect_rejected(evaluate(tokens), 3, "must be int32 or int64; got F32");
  write_text(tokens,
             safetensors({{"input_ids", "I64", {1, 2}, bytes_of(std::vector<std::int64_t>{1, 320})}}));
  expect_rejected(evaluate(tokens), 3, "got 320 at [0, 1]");
  write_text(tokens, safetensors({{"input_ids", "I64", {1, 3}, bytes_of(std::vector<std::int64_t>{1, 2})}}));
  expect_rejected(evaluate(tokens), 3, tokens.string());
  expect_rejected({"evaluate", "--load", (folder / "nothing").string(), "--mock-data"}, 3, "nothing");
  expect_rejected({"generate", "--pretrained-checkpoint", (folder / "nothing").string(), "--prompt", "1"}, 3,
                  "nothing");
  expect_rejected(generate({"--prompt", "1 320"}), 3, "integers from 0 to 319");
  expect_rejected(generate({"--prompt-file", (folder / "nothing").string()}), 3, "nothing");
}

}  // namespace
}  // namespace colonnade::e2e
