// `data inspect` and `data audit` on data, and on runs as real processes: killed, resumed, changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;

const std::string kVectors = test::vectors();

json read_json(const std::filesystem::path& path) { return json::parse(read_text(path)); }

Words model(const std::string& family) {
  return {"pretrain",
          family,
          "--num-layers=2",
          "--hidden-size=64",
          "--num-attention-heads=4",
          "--lr=1e-3",
          "--eval-iters=0",
          "--micro-batch-size=2",
          "--global-batch-size=4",
          "--attention-dropout=0",
          "--hidden-dropout=0"};
}

Words gpt(const TempFolder& folder, const std::string& name, int last) {
  return model("gpt") + Words{"--data-path",
                              kVectors + "/indexed/gpt_uint16",
                              "--data-cache-path",
                              (folder / "cache").string(),
                              "--split=9,1,0",
                              "--vocab-size=1025",
                              "--seq-length=32",
                              "--max-position-embeddings=32",
                              "--save",
                              (folder / name).string(),
                              "--save-interval=2",
                              "--train-iters",
                              std::to_string(last)};
}

Result audit(const TempFolder& folder, const std::string& name, const Words& more = {}) {
  return run(colonnade(
      Words{"data", "audit", (folder / name).string(), "--json", (folder / "a.json").string()} + more));
}

TEST(DataVerbs, AuditReportsTheLostSamplesOfAKilledRun) {
  const TempFolder folder;
  // Killed in its fourth step: the newest checkpoint is that of step 2, and step 3 is repeated.
  const Result killed = run(colonnade(gpt(folder, "run", 6)), {{"COLONNADE_FAULT", "at=step-begin step=4"}});
  ASSERT_NE(killed.code, 0);
  ASSERT_EQ(iterations(folder / "run"), (std::vector{1, 2, 3})) << killed.text;
  const Result resumed =
      run(launch(2, folder.path(), gpt(folder, "run", 6) + Words{"--load", (folder / "run").string()}));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(
      audit(folder, "run", {"--samples", "9999"}).text,
      HasSubstr("--samples must be among the samples 0 to 23 that the run has used; got 9999 to 9999"));
  const Result result = audit(folder, "run", {"--samples", "11..12"});
  EXPECT_EQ(result.code, 0) << result.text;
  const json a = read_json(folder / "a.json");
  EXPECT_EQ(a["samples"], 24);
  ASSERT_EQ(a["sessions"].size(), 2U);
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 7}));
  EXPECT_EQ(a["sessions"][1]["samples"], (json{8, 23}));
  EXPECT_EQ(a["computed_again"], json::parse(R"([{"samples": [8, 11], "times": 2}])"));
  EXPECT_EQ(a["data_sets"][0]["samples"], 24);
  EXPECT_EQ(a["data_sets"][0]["tokens"], 24 * 32);
  EXPECT_EQ(a["files"].size(), 2U);
  EXPECT_EQ(a["shown"].size(), 2U);
  EXPECT_EQ(a["shown"][1]["step"], 4);
  EXPECT_THAT(result.text, HasSubstr("samples 8 to 11 were computed 2 times; the weights contain the last"));
}

/// Expects `count` answers "It is N" with their end of turn, at the stated positions of the sample.
void expect_answers(const json& sample, std::size_t count) {
  std::vector<json> tokens;
  for (const json& piece : sample["pieces"])
    for (const json& token : piece["tokens"]) tokens.push_back(token);
  ASSERT_EQ(sample["answers"].size(), count) << sample;
  for (const json& answer : sample["answers"]) {
    EXPECT_THAT(answer["text"].get<std::string>(), MatchesRegex("It is [0-5]<[|]im_end[|]>\n")) << sample;
    const auto at = answer["at"].get<std::size_t>();
    for (std::size_t i = 0; i < answer["tokens"].size(); ++i)
      EXPECT_EQ(answer["tokens"][i], tokens.at(at + i)) << sample;
  }
}

TEST(DataVerbs, AuditOfAT5) {
  const TempFolder folder;
  const Words t5 = model("t5") + Words{"--encoder-num-layers=1",
                                       "--decoder-seq-length=32",
                                       "--mock-data",
                                       "--vocab-size=1000",
                                       "--vocab-extra-ids=40",
                                       "--seq-length=64",
                                       "--max-position-embeddings=64",
                                       "--train-iters=2",
                                       "--save-interval=2",
                                       "--save",
                                       (folder / "t5").string()};
  const Result trained = run(colonnade(t5));
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_EQ(audit(folder, "t5").code, 0);
  EXPECT_EQ(read_json(folder / "a.json")["data_sets"][0]["samples"], 8);
}

/// Writes six conversations and their tokenizer; returns the tokenizer's flags.
Words write_chats(const TempFolder& folder) {
  std::filesystem::create_directories(folder / "tok");
  std::filesystem::copy_file(kVectors + "/tokenizers/qwen2_bpe.json", folder / "tok/tokenizer.json");
  std::filesystem::copy_file(kVectors + "/chat/templates/chatml.jinja", folder / "tok/chat_template.jinja");
  std::ofstream chats(folder / "chats.jsonl");
  for (int i = 0; i < 6; ++i)
    chats << json{{"messages",
                   {{{"role", "user"}, {"content", std::to_string(i)}},
                    {{"role", "assistant"}, {"content", "It is " + std::to_string(i)}}}}}
          << "\n";
  chats.close();
  return {"--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model", (folder / "tok").string()};
}

TEST(DataVerbs, AuditOfChats) {
  const TempFolder folder;
  const Words tokenizer = write_chats(folder);
  const Words sft = model("gpt") + tokenizer +
                    Words{"--sft",
                          "--data-path",
                          (folder / "chats.jsonl").string(),
                          "--split=1,0,0",
                          "--seq-length=96",
                          "--max-position-embeddings=96",
                          "--train-iters=3",
                          "--save-interval=3",
                          "--save",
                          (folder / "sft").string()};
  const Result tuned = run(colonnade(sft));
  ASSERT_EQ(tuned.code, 0) << tuned.text;
  EXPECT_THAT(tuned.text, HasSubstr("fewer conversations than the train samples require"));
  const Result shown = audit(folder, "sft", {"--samples", "0..11"});
  EXPECT_EQ(shown.code, 0) << shown.text;
  const json a = read_json(folder / "a.json");
  EXPECT_EQ(a["data_sets"][0]["read"], 6);
  EXPECT_EQ(a["data_sets"][0]["read_again"], 6) << "12 samples of 6 conversations";
  EXPECT_EQ(a["data_sets"][0]["first_again"], 6);
  EXPECT_THAT(a["shown"][0]["pieces"][0]["text"].get<std::string>(), HasSubstr("It is "));
  EXPECT_EQ(a["files"][0]["state"], "unchanged");
  for (const json& sample : a["shown"]) expect_answers(sample, 1);

  std::ofstream(folder / "tok/chat_template.jinja", std::ios::app) << "{# edited #}";
  const Result edited = audit(folder, "sft");
  EXPECT_EQ(edited.code, 3) << edited.text;
  EXPECT_THAT(edited.text, HasSubstr("the chat template must have the text that the session used"));

  std::ofstream(folder / "chats.jsonl", std::ios::app) << "\n";
  const Result changed = audit(folder, "sft");
  EXPECT_EQ(changed.code, 3) << changed.text;
  EXPECT_THAT(changed.text, HasSubstr("chats.jsonl: changed"));
}

TEST(DataVerbs, InspectOfChats) {
  const TempFolder folder;
  const Words tokenizer = write_chats(folder);
  const Result inspected =
      run(colonnade(Words{"data", "inspect", (folder / "chats.jsonl").string(), "--sft", "--seq-length=96",
                          "--samples=12", "--check-tokens", "--json", (folder / "i.json").string()} +
                    tokenizer));
  EXPECT_EQ(inspected.code, 0) << inspected.text;
  const json set = read_json(folder / "i.json")["data_sets"][0];
  EXPECT_EQ(set["conversations"], 6);
  EXPECT_EQ(set["first_again"], 6);
  EXPECT_EQ(set["beyond_vocabulary"], 0);
  EXPECT_EQ(set["repeated_documents"], 0);
  const Result packed =
      run(colonnade(Words{"data", "inspect", (folder / "chats.jsonl").string(), "--sft", "--seq-length=200",
                          "--samples=2", "--show=1", "--show-tokens=200", "--reset-position-ids",
                          "--reset-attention-mask", "--json", (folder / "i.json").string()} +
                    tokenizer));
  EXPECT_EQ(packed.code, 0) << packed.text;
  EXPECT_THAT(packed.text, HasSubstr("  answer from token "));
  const json one = read_json(folder / "i.json")["samples"][0];
  EXPECT_GT(one["pieces"].size(), 2U);
  expect_answers(one, one["pieces"].size());
}

TEST(DataVerbs, RunThatCannotWriteItsLedgerDoesNotStart) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "run/ledger.jsonl/in the way");
  const Result result = run(launch(2, folder.path(), gpt(folder, "run", 6)));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.text, HasSubstr("ledger.jsonl must record this session"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
}

TEST(DataVerbs, AuditReportsMissingFilesAndInvalidRanges) {
  const TempFolder folder;
  const Result none = audit(folder, "none");
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.text, HasSubstr("ledger.jsonl must exist"));
  const Result range = audit(folder, "none", {"--samples", "4.."});
  EXPECT_EQ(range.code, 2);
  EXPECT_THAT(range.text, HasSubstr("--samples must be a number or A..B; got '4..'"));
}

/// Expects each inspection of a dataset with `shared` and these flags to end with exit code 2 and a message.
void expect_rejected(const Words& shared, const std::vector<std::pair<Words, std::string>>& cases) {
  const std::string set = kVectors + "/indexed/gpt_uint16";
  for (const auto& [flags, rule] : cases) {
    const bool named = std::ranges::count(flags, "--mock-data") > 0;
    const Result result =
        run(colonnade(Words{"data", "inspect"} + (named ? Words{} : Words{set}) + shared + flags));
    EXPECT_EQ(result.code, 2) << rule << result.text;
    EXPECT_THAT(result.text, HasSubstr(rule));
  }
}

TEST(DataVerbs, InspectionRejectsFlagsThatItDoesNotRead) {
  expect_rejected(
      {}, {{{"--samples=5"}, "--samples requires --seq-length; got none"},
           {{"--from=5"}, "--from requires --seq-length; got none"},
           {{"--split-name=valid"}, "--split-name requires --seq-length; got none"},
           {{"--split=1"}, "--split requires --seq-length; got none"},
           {{"--family=bert"}, "--model requires --seq-length; got none"},
           {{"--train-iters=5"}, "--train-iters requires --seq-length; got none"},
           {{"--chat-template=x"}, "--chat-template has no effect without --sft"},
           {{"--fim-rate=0.2"}, "--fim-rate has no effect without --fim-data"},
           {{"--tokenizer-model=x"}, "--tokenizer-model must be given with a --tokenizer-type"},
           {{"--vocab-size=5"}, "--vocab-size requires --tokenizer-type or --check-tokens; got none"},
           {{"--lr=0.1"}, "--lr has no effect in `data inspect`; got 0.1; remove it, or set it in a YAML"},
           {{"--mock-data", "--vocab-size=99"}, "--mock-data requires --seq-length; got none"}});
  expect_rejected(
      {"--seq-length=32"},
      {{{"--mask-prob=0.2"}, "--mask-prob has no effect without --model t5 or bert"},
       {{"--vocab-extra-ids=5", "--family=bert"}, "--vocab-extra-ids requires --model t5"},
       {{"--bert-no-binary-head"}, "--bert-no-binary-head must be used with a BERT model"},
       {{"--sft", "--family=t5"}, "--sft requires a GPT model; got t5"},
       {{"--family=llama"}, "--family must be one of gpt, t5, bert; got \"llama\""},
       {{"--family=bert", "--mask-prob=2"}, "--mask-prob must lie between 0 and 1; got \"2\""},
       {{"--fim-data"}, "--tokenizer-type must be one that reads text with --fim-data; got none"},
       {{"--fim-data", "--sft"}, "--fim-data requires a GPT model and data files of text; got --sft"},
       {{"--sft", "--reset-position-ids"},
        "--reset-attention-mask must be set with --sft and --reset-position-ids"},
       {{"--reset-position-ids"}, "--reset-position-ids requires --sft; got none"},
       {{"--split=a"}, "--split must be one to three non-negative numbers"},
       {{"--num-workers=3"}, "--num-workers has no effect in `data inspect`; got 3"},
       {{"--data-path", "x"}, "--data-path must not be used with positional data paths"},
       {{"--mock-data"}, "--vocab-size must be set if no tokenizer reads a vocabulary file"},
       {{"--mock-data", "--vocab-size=99", "--check-tokens"},
        "--check-tokens requires data files; got --mock-data"},
       {{"--valid-data-path", "x"}, "data must come from exactly one of --data-path"},
       {{"--dataloader-type=cyclic"},
        "--global-batch-size must be given: an epoch of --dataloader-type cyclic"},
       {{"--train-iters=3"}, "--global-batch-size must be given: a step reads that many samples"},
       {{"--split-name=all"}, "--split-name must be train, valid or test; got 'all'"},
       {{"--samples=0"}, "--samples must be at least 1; got 0"},
       {{"--show=-1"}, "--show must be at least 0; got -1"},
       {{"--eval-iters=3"}, "--eval-iters requires --split-name valid or test; got none"},
       {{"--samples=5", "--train-iters=3"}, "--train-iters must not be used with --samples"},
       {{"--samples=5", "--global-batch-size=3"}, "--global-batch-size must not be used with --samples"},
       {{"--split-name=valid", "--global-batch-size=2", "--eval-iters=0"},
        "--samples must be given; got a run without"}});
  const Result nothing = run(colonnade({"data", "inspect"}));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.text, HasSubstr("data paths must be given; got none"));
}

TEST(DataVerbs, TokenizerTrainingRejectsFlagsOfTheOtherKind) {
  const Words train{"tokenizer", "train", "--input=x", "--output-prefix=x", "--vocab-size=300"};
  for (const char* flag : {"--character-coverage=0.5", "--input-sentence-size=5", "--no-byte-fallback"}) {
    const Result result = run(colonnade(train + Words{"--model-type=byte-bpe", flag}));
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.text, HasSubstr("requires --model-type bpe or unigram")) << flag;
  }
  for (const char* flag : {"--split-rule=gpt2", "--special-tokens=x", "--min-frequency=3"}) {
    const Result result = run(colonnade(train + Words{flag}));
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.text, HasSubstr("requires --model-type byte-bpe")) << flag;
  }
}

TEST(DataVerbs, InspectionShowsAnySample) {
  const TempFolder folder;
  const Words words{"data",
                    "inspect",
                    kVectors + "/indexed/gpt_uint16",
                    "--seq-length=64",
                    "--samples=1000",
                    "--data-cache-path",
                    (folder / "cache").string(),
                    "--json",
                    (folder / "i.json").string()};
  ASSERT_EQ(run(colonnade(words + Words{"--show=40", "--show-tokens=1000"})).code, 0);
  const json all = read_json(folder / "i.json");
  const Result one = run(colonnade(words + Words{"--from=37", "--show=1", "--show-tokens=1000"}));
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_EQ(read_json(folder / "i.json")["samples"], json::array({all["samples"][37]}));
  EXPECT_GT(all["data_sets"][0]["epochs"], 1);
  EXPECT_TRUE(all["data_sets"][0]["first_again"].is_number());
  EXPECT_EQ(run(colonnade(words + Words{"--from=100000"})).code, 2);
  // An epoch has more samples than a run of five reads.
  const Words five = words + Words{"--samples=5"};
  ASSERT_EQ(run(colonnade(five + Words{"--from=4"})).code, 0);
  EXPECT_EQ(read_json(folder / "i.json")["samples"].size(), 1U);
  EXPECT_EQ(read_json(folder / "i.json")["samples"][0]["sample"], 4);
  const Result none = run(colonnade(five + Words{"--from=5"}));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.text, HasSubstr("--from must be one of the requested samples, 0 to 4; got 5;"));
  Words unsaid = words + Words{"--from=9", "--show=2"};
  std::erase(unsaid, "--samples=1000");
  const Result told = run(colonnade(unsaid));
  ASSERT_EQ(told.code, 0) << told.text;
  EXPECT_THAT(told.text, HasSubstr("is not set; using 11, from --from and --show"));
  EXPECT_EQ(read_json(folder / "i.json")["asked"], 11);
  EXPECT_EQ(read_json(folder / "i.json")["samples"].size(), 2U);
}

/// An inspection with the flags of a run agrees with the audit of that run.
TEST(DataVerbs, InspectionShowsTheSamplesThatARunReads) {
  const TempFolder folder;
  const Words sentences{"--data-path", kVectors + "/indexed/bert_uint16"};
  const Words texts{"--data-path", kVectors + "/indexed/gpt2_uint16"};
  const Words bert{"--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model",
                   kVectors + "/tokenizers/bert_wordpiece.json", "--mask-prob=0.2"};
  const Words t5{"--tokenizer-type=NullTokenizer", "--vocab-size=2100", "--vocab-extra-ids=100",
                 "--decoder-seq-length=64"};
  const Words fim = fill_in_the_middle();
  const Words shared{"--seq-length=96", "--seed=7", "--split=9,1,0", "--data-cache-path",
                     (folder / "cache").string()};
  struct Case {
    std::string family;
    Words data, own;
    std::string key;
  };
  for (const auto& [family, data, own, key] :
       {Case{"bert", sentences, bert, "hidden"},
        Case{"t5", sentences, t5 + Words{"--short-seq-prob=0.3"}, "gaps"},
        Case{"gpt", texts, fim, "written"}}) {
    const Words layers = family == "t5" ? Words{"--encoder-num-layers=1"} : Words{};
    const Result trained = run(colonnade(model(family) + layers + data + own + shared +
                                         Words{"--max-position-embeddings=96", "--train-iters=2",
                                               "--save-interval=2", "--save", (folder / family).string()}));
    ASSERT_EQ(trained.code, 0) << trained.text;
    const Result audited = audit(folder, family, {"--samples", "0..7"});
    ASSERT_EQ(audited.code, 0) << audited.text;
    const Result inspected =
        run(colonnade(Words{"data", "inspect", data[1], "--family", family, "--samples=8", "--show=8",
                            "--show-tokens=64", "--json", (folder / "i.json").string()} +
                      own + shared));
    ASSERT_EQ(inspected.code, 0) << inspected.text;
    const json a = read_json(folder / "a.json"), i = read_json(folder / "i.json");
    ASSERT_EQ(i["samples"].size(), 8U);
    for (std::size_t n = 0; n < 8; ++n) {
      EXPECT_TRUE(i["samples"][n].contains(key)) << family;
      json shown = a["shown"][n], inspected_one = i["samples"][n];
      for (const char* of_runs : {"session", "step", "skipped", "data_set"}) shown.erase(of_runs);
      inspected_one.erase("data_set");
      EXPECT_EQ(inspected_one, shown) << family;
    }
    EXPECT_EQ(a["data_sets"][0]["epochs"], i["data_sets"][0]["epochs"]);
    EXPECT_EQ(a["data_sets"][0]["first_again"], i["data_sets"][0]["first_again"]);
    EXPECT_THAT(inspected.text, HasSubstr(key == "hidden" ? "masked at "
                                          : key == "gaps" ? "masked span of sentinel "
                                                          : "middle, "));
  }
}

}  // namespace
}  // namespace colonnade::e2e
