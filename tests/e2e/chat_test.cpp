// Chat messages: the commands of the guide, and runs over several processes that train as one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

TEST(Chat, GuideCommandsWork) {
  const TempFolder folder;
  const std::string commands = commands_of_guide("chat_data.md");
  ASSERT_NE(commands.find("pretrain gpt --sft"), std::string::npos);
  const Result result = shell(folder, commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find(R"("answers":["8<|im_end|>","9<|im_end|>"])"), std::string::npos) << result.text;
  const auto lines = metrics(folder / "runs/sums");
  ASSERT_EQ(lines.size(), 30U);
  EXPECT_LT(lines.back().at("lm_loss"), 0.7 * lines.front().at("lm_loss").get<double>());
  // The finetuned run starts from the weights of the other one, and reads other samples in its first step.
  const double before = lines.front().at("lm_loss"),
               tuned = metrics(folder / "runs/tuned").front().at("lm_loss");
  EXPECT_LT(tuned, 0.7 * before);
  EXPECT_NE(result.text.find("runs/tuned: 10 steps, 20 samples"), std::string::npos) << result.text;
}

/// 60 conversations of one to three turns, and a tokenizer with a template.
void write_chats(const TempFolder& folder) {
  std::filesystem::create_directories(folder / "tok");
  const std::string& vectors = test::vectors();
  std::filesystem::copy_file(vectors + "/tokenizers/qwen2_bpe.json", folder / "tok/tokenizer.json");
  std::filesystem::copy_file(vectors + "/chat/templates/chatml.jinja", folder / "tok/chat_template.jinja");
  std::ofstream file(folder / "chats.jsonl");
  for (int i = 0; i < 60; ++i) {
    nlohmann::json messages;
    for (int turn = 0; turn <= i % 3; ++turn) {
      messages.push_back({{"role", "user"}, {"content", std::to_string(i) + " and " + std::to_string(turn)}});
      messages.push_back({{"role", "assistant"}, {"content", "makes " + std::string(i % 7, 'a')}});
    }
    file << nlohmann::json{{"messages", messages}} << "\n";
  }
}

Words settings(const TempFolder& folder, const std::string& name) {
  return {"pretrain",
          "gpt",
          "--sft",
          "--data-path",
          (folder / "chats.jsonl").string(),
          "--split=1,0,0",
          "--reset-position-ids",
          "--reset-attention-mask",
          "--tokenizer-type=SFTTokenizer",
          "--tokenizer-model",
          (folder / "tok").string(),
          "--num-layers=2",
          "--hidden-size=64",
          "--num-attention-heads=4",
          "--seq-length=96",
          "--max-position-embeddings=96",
          "--hidden-dropout=0",
          "--attention-dropout=0",
          "--micro-batch-size=1",
          "--global-batch-size=4",
          "--calculate-per-token-loss",
          "--train-iters=12",
          "--lr=1e-3",
          "--eval-iters=0",
          "--save-interval=6",
          "--save",
          (folder / name).string()};
}

TEST(Chat, EveryLayoutTrainsOnTheSameAnswersAndResumes) {
  const TempFolder folder;
  write_chats(folder);
  const Result one = run(colonnade(settings(folder, "one")));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto expected = metrics(folder / "one");
  ASSERT_EQ(expected.size(), 12U);
  const std::pair<const char*, Words> layouts[] = {
      {"data", {}},
      {"tensor", {"--tensor-model-parallel-size=2", "--sequence-parallel"}},
      {"context", {"--context-parallel-size=2"}},
      {"stages", {"--pipeline-model-parallel-size=2", "--micro-batch-size=2"}},
      // Resumes from the run on one rank.
      {"resumed", {"--load", (folder / "one").string(), "--ckpt-step=6"}},
  };
  for (const auto& [name, flags] : layouts) {
    const Result two = run(launch(2, folder.path(), settings(folder, name) + flags));
    ASSERT_EQ(two.code, 0) << two.text;
    expect_equal_ends(expected, metrics(folder / name), std::string(name) == "resumed" ? 6 : 12);
  }
}

TEST(Chat, EvaluateScoresTheAnswersOfARunsMessages) {
  const TempFolder folder;
  write_chats(folder);
  const Words own = settings(folder, "run") + Words{"--split=3,1,0", "--eval-iters=1", "--eval-interval=12"};
  const Result trained = run(colonnade(own));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const auto records = validations(folder / "run");
  ASSERT_EQ(records.size(), 1U);
  const Words load{"evaluate", "--load", (folder / "run").string()};
  const Words evaluate = load + Words{"--eval-iters=1"};
  const Evaluated one = evaluated(colonnade(evaluate)), two = evaluated(launch(2, folder.path(), evaluate));
  EXPECT_NEAR(one.loss, records[0].at("loss"), 3e-6);
  EXPECT_NEAR(two.loss, one.loss, 3e-6);
  EXPECT_EQ(two.tokens, one.tokens) << "of equally many samples";
  EXPECT_LT(one.tokens, 4 * 96) << "questions have no loss";
  const Result texts = run(colonnade(load + Words{"--data-path=texts"}));
  EXPECT_EQ(texts.code, 3);
  EXPECT_NE(texts.text.find("--sft: the checkpoint's run read chat messages"), std::string::npos)
      << texts.text;
  EXPECT_NE(texts.text.find("use --no-sft"), std::string::npos) << texts.text;
}

TEST(Chat, ValidationSplitWithoutAnAnswerIsReportedAndTheRunContinues) {
  const TempFolder folder;
  write_chats(folder);
  const std::string chats = (folder / "long.jsonl").string();
  std::ofstream(chats) << nlohmann::json{{"messages",
                                          {{{"role", "user"}, {"content", std::string(4000, 'q')}},
                                           {{"role", "assistant"}, {"content", "too late"}}}}}
                       << "\n";
  Words words = settings(folder, "run") + Words{"--eval-iters=1", "--eval-interval=6"};
  const auto at = std::find(words.begin(), words.end(), "--data-path");
  at[0] = "--train-data-path";
  std::erase(words, "--split=1,0,0");
  const Result result = run(colonnade(words + Words{"--valid-data-path", chats}));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("long.jsonl: the valid split must hold a conversation with an answer within"),
            std::string::npos)
      << result.text;
  EXPECT_NE(result.text.find("there will be no valid batches"), std::string::npos);
  EXPECT_FALSE(metrics(folder / "run").empty());
}

TEST(Chat, FullValidationScoresAllAnswersInEveryLayout) {
  const TempFolder folder;
  write_chats(folder);
  const Words full{"--split=1,1,0", "--eval-interval=12", "--full-validation"};
  const Result one = run(colonnade(settings(folder, "one") + full));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto at = one.text.find("validation: reads ");
  ASSERT_NE(at, std::string::npos) << one.text;
  const int read = std::stoi(one.text.substr(at + std::string("validation: reads ").size()));
  EXPECT_GE(read, 8) << "more than a batch";
  const double loss = validations(folder / "one").at(0).at("loss");
  const Words evaluate{"evaluate", "--load", (folder / "one").string(), "--global-batch-size=1"};
  const auto scored = [&](int samples) {
    return evaluated(colonnade(evaluate + Words{"--eval-iters=" + std::to_string(samples)})).loss;
  };
  EXPECT_NEAR(loss, scored(read), 3e-6);
  EXPECT_GT(std::abs(loss - scored(read - 1)), 1e-5);
  const Result two = run(launch(2, folder.path(), settings(folder, "two") + full));
  ASSERT_EQ(two.code, 0) << two.text;
  EXPECT_NEAR(validations(folder / "two").at(0).at("loss"), loss, 2e-5);
}

TEST(Chat, ChangedAnswersAndTemplatesAreDetected) {
  const TempFolder folder;
  write_chats(folder);
  const Words words = settings(folder, "run");
  ASSERT_EQ(run(colonnade(words)).code, 0);
  const Words load{"--load", (folder / "run").string(), "--train-iters=14", "--override-opt-param-scheduler"};
  const Result other = run(colonnade(words + load + Words{"--chat-template={{ messages }}"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.text.find("--chat-template must keep its value when a run resumes"), std::string::npos)
      << other.text;
  const Result goes_on = run(colonnade(words + load));
  EXPECT_EQ(goes_on.code, 0) << goes_on.text;
}

/// Tokenizers given by single files, as for `preprocess`.
TEST(RunTokenizers, AreMadeFromTheFilesOfTheFlags) {
  const TempFolder folder;
  const std::string& vectors = test::vectors();
  const auto file = nlohmann::json::parse(read_text(vectors + "/tokenizers/gpt2_bpe.json"));
  nlohmann::json vocab = file["model"]["vocab"];
  vocab["<|endoftext|>"] = 1024;
  std::ofstream(folder / "v.json") << vocab;
  std::ofstream merges(folder / "m.txt");
  for (const auto& merge : file["model"]["merges"])
    merges << merge[0].get<std::string>() << " " << merge[1].get<std::string>() << "\n";
  merges.close();
  const Words model{"pretrain",
                    "gpt",
                    "--num-layers=2",
                    "--hidden-size=64",
                    "--num-attention-heads=4",
                    "--seq-length=64",
                    "--max-position-embeddings=64",
                    "--micro-batch-size=1",
                    "--mock-data",
                    "--train-iters=1",
                    "--lr=1e-3",
                    "--eval-iters=0"};
  const auto trained = [&](const Words& flags) { return run(colonnade(model + flags), {}, folder.path()); };
  const Result gpt2 = trained({"--tokenizer-type=GPT2BPETokenizer", "--vocab-file",
                               (folder / "v.json").string(), "--merge-file", (folder / "m.txt").string()});
  EXPECT_EQ(gpt2.code, 0) << gpt2.text;
  const Result tiktoken = trained({"--tokenizer-type=TikTokenizer", "--tokenizer-model",
                                   vectors + "/tiktoken/ranks.tiktoken", "--tiktoken-pattern=llama3"});
  EXPECT_EQ(tiktoken.code, 0) << tiktoken.text;
  const Result wrong = trained({"--tokenizer-type=TikTokenizer", "--tokenizer-model",
                                vectors + "/tiktoken/ranks.tiktoken", "--tiktoken-pattern=v9"});
  EXPECT_EQ(wrong.code, 2) << wrong.text;
  const Result habit = trained(
      {"--tokenizer-type=NullTokenizer", "--vocab-size=100", "--tiktoken-pattern=v2", "--vocab-file=V"});
  EXPECT_EQ(habit.code, 0) << habit.text;
  EXPECT_NE(habit.text.find("--tiktoken-pattern"), std::string::npos) << habit.text;
  const Result alone = trained({"--vocab-size=100", "--merge-file=M"});
  EXPECT_EQ(alone.code, 2) << alone.text;
}

TEST(Chat, VerbSkipsEmptyLinesAndRejectsTheSameAsARun) {
  const auto shown = [](const std::string& flags) {
    return run(
        {"bash", "-euc",
         R"(printf '\n \r\n{"messages": [{"role": "assistant", "content": "A"}]}\n\n' | )" COLONNADE_EXECUTABLE
         " tokenizer chat " +
             flags});
  };
  const Result written = shown("--sft-tokenizer-prompt-format identity");
  EXPECT_EQ(written.code, 0) << written.text;
  EXPECT_EQ(
      written.text.find("{\"answers\":[\"A\"],\"text\":\"A\"}\nwarning: tokenizer chat: 1 of 1 answers"), 0U)
      << written.text;
  const Result refused = shown("--sft-tokenizer-prompt-format identity --chat-template '{{ 1 }}'");
  EXPECT_NE(refused.code, 0) << refused.text;
  EXPECT_NE(refused.text.find("--chat-template requires --sft-tokenizer-prompt-format default"),
            std::string::npos)
      << refused.text;
}

TEST(Chat, InvalidLineEndsTheRunWithItsLocation) {
  const TempFolder folder;
  write_chats(folder);
  std::ofstream(folder / "chats.jsonl", std::ios::app) << "{\"messages\": [{\"content\": 1}]}\n";
  const Result result = run(colonnade(settings(folder, "run")));
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.text.find("chats.jsonl line 61: message 1 must be an object with a string 'role'"),
            std::string::npos)
      << result.text;
}

}  // namespace
}  // namespace colonnade::e2e
