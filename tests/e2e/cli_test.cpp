// The executable from the user's side: verbs, help, errors, exit codes, and the launcher's flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Result {
  int code = 0;
  std::string text;  // standard output and standard error together
};

/// `colonnade <arguments>` in a shell, with "NAME=value " pairs before it.
Result colonnade(const std::string& arguments, const std::string& variables = "") {
  Result result;
  FILE* const pipe = ::popen((variables + COLONNADE_EXECUTABLE " " + arguments + " 2>&1").c_str(), "r");
  char chunk[4096];
  for (std::size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;) result.text.append(chunk, n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

/// Number of occurrences of `part` in `text`.
int count(const std::string& text, const std::string& part) {
  int times = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++times;
  return times;
}

constexpr const char* kModel =
    " --num-layers 4 --hidden-size 8 --num-attention-heads 2 --vocab-size 10 --max-position-embeddings 8 ";

TEST(Cli, PrintsVersionAndVerbs) {
  EXPECT_THAT(colonnade("--version").text, StartsWith("colonnade 0."));
  const Result help = colonnade("help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.text, HasSubstr("launch"));
  EXPECT_EQ(colonnade("").code, 2);
}

TEST(Cli, SuggestsTheNearestVerb) {
  const Result result = colonnade("lanch --help");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text,
              AllOf(StartsWith("error: lanch must be a verb; "), HasSubstr("did you mean `launch`?")));
  EXPECT_THAT(colonnade("help lanch").text, HasSubstr("lanch"));
}

TEST(Cli, HelpOfAVerbIsItsOwn) {
  const Result result = colonnade("help launch");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, HasSubstr("--max-restarts"));
  EXPECT_EQ(result.text, colonnade("launch --help").text);
}

TEST(Cli, HelpAcceptsSubVerbsAndFlags) {
  EXPECT_THAT(colonnade("help tokenizer encode").text, HasSubstr("--add-special-tokens"));
  EXPECT_EQ(colonnade("help tokenizer encode").text, colonnade("tokenizer encode --help").text);
  EXPECT_THAT(colonnade("help checkpoint verify").text, HasSubstr("--json"));
  EXPECT_EQ(colonnade("help pretrain gpt").text, colonnade("pretrain --help").text);
  EXPECT_EQ(colonnade("help pretrain --lr").text, colonnade("help --lr").text);
  EXPECT_THAT(colonnade("help generate").text, HasSubstr("--seed"));
}

TEST(Cli, PlanPrintsItsAssumptionsAndReportsTrainingFaults) {
  const Result plan = colonnade(std::string("plan --pipeline-model-parallel-size 2 --load run") + kModel);
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, AllOf(HasSubstr("the smallest world, 2 ranks (data-parallel size 1)"),
                               HasSubstr("training: --seq-length"), HasSubstr("--lr")));
  EXPECT_THAT(colonnade(std::string("plan --world-size 4") + kModel).text, Not(HasSubstr("smallest world")));
  const Result wrong = colonnade(std::string("plan --overlap-param-gather --finetune") + kModel);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("param-gather"), HasSubstr("load-given")));
}

TEST(Cli, PlanFillsInMissingSettings) {
  const Result plan = colonnade(
      std::string("plan --transformer-impl local --lr-decay-style constant --min-lr 1e-5") + kModel);
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(
      plan.text,
      AllOf(StartsWith("batch: --micro-batch-size is not given; assuming 1 sequence\n"
                       "batch: --seq-length is not given; assuming --max-position-embeddings, 8 tokens\n"),
            HasSubstr("batch: 1 sequence of 8 tokens"), HasSubstr("training: --seq-length, --micro-batch"),
            HasSubstr("\n--transformer-impl: "), HasSubstr("\n--min-lr has no effect with")));
  const Result none = colonnade(
      "plan --num-layers 4 --hidden-size 8 --num-attention-heads 2 --vocab-size 10 "
      "--position-embedding-type rope");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.text, HasSubstr("--seq-length must be given, or --max-position-embeddings; got neither"));
}

/// The line of `text` that starts with `beginning`, without it.
std::string line_after(const std::string& text, const std::string& beginning) {
  const std::size_t at = text.find(beginning);
  if (at == std::string::npos) return "";
  return text.substr(at + beginning.size(), text.find('\n', at + beginning.size()) - at - beginning.size());
}

TEST(Cli, PlanEstimatesAStep) {
  const std::string line = std::string("plan --world-size 4 --tensor-model-parallel-size 2 --bf16") + kModel;
  const Result plan = colonnade(line + " --hardware h100");
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, AllOf(HasSubstr("\nestimate on H100 SXM: "), HasSubstr("\ntensor-parallel comm ")));
  EXPECT_THAT(colonnade(line).text, Not(HasSubstr("estimate on")));
  const Result wrong = colonnade(line + " --hardware h1000 --yaml x.yaml --overlap-param-gather");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("--hardware must be one of a100, b200, h100, h200, or a YAML file"),
                                HasSubstr("--yaml requires --search"), HasSubstr("param-gather")));
}

TEST(Cli, PlanWritesItsPictures) {
  const std::string pipeline = ::testing::TempDir() + "pipeline.svg",
                    memory = ::testing::TempDir() + "memory.svg";
  const Result result = colonnade("plan --svg " + pipeline + " --memory-svg " + memory + kModel);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("w weights, g gradients, o optimizer"));
  const auto text_of = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_THAT(text_of(pipeline), HasSubstr("pipeline schedule"));
  EXPECT_THAT(text_of(memory), HasSubstr("memory by pipeline rank"));
  std::filesystem::remove(pipeline);
  std::filesystem::remove(memory);
}

TEST(Cli, JsonPlanListsTheExpertsOfEachRank) {
  const std::string file = ::testing::TempDir() + "experts.json";
  const auto json = [&](const std::string& more) {
    const Result result = colonnade("plan --json " + file + kModel + more);
    EXPECT_EQ(result.code, 0) << result.text;
    return nlohmann::json::parse(std::ifstream(file));
  };
  const nlohmann::json experts =
      json(
          "--num-experts 6 --moe-router-topk 2 --disable-bias-linear --tensor-model-parallel-size 2 "
          "--sequence-parallel --expert-model-parallel-size 3 --expert-tensor-parallel-size 2 --world-size 12")
          .at("experts");
  EXPECT_EQ(experts.at("num_experts"), 6);
  EXPECT_EQ(experts.at("tensor"), 2);
  EXPECT_EQ(experts.at("expert"), 3);
  EXPECT_EQ(experts.at("data"), 2);
  const nlohmann::json& held =
      experts.at("held");  // etp is the innermost axis, then ep, then expert data parallelism
  ASSERT_EQ(held.size(), 6U);
  EXPECT_EQ(held[3], nlohmann::json::parse(R"({"expert_rank": 1, "part": 1, "ranks": [3, 9], "first": 2,
                                               "count": 2})"));
  EXPECT_TRUE(json("").at("experts").is_null());
  std::filesystem::remove(file);
}

TEST(Cli, CommandsOfTheSearchRunUnchanged) {
  const std::string model = std::string(kModel) + " --bf16 --seq-length 8 --global-batch-size 64";
  const std::string folder = std::filesystem::temp_directory_path() / ("search-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Result search = colonnade("plan --search --world-size 16 --hardware h100 --json " + folder +
                                  "/found.json --yaml " + folder +
                                  "/best.yaml --num-layers-per-virtual-pipeline-stage 1 "
                                  "--pipeline-model-parallel-size 2" +
                                  model);
  ASSERT_EQ(search.code, 0) << search.text;
  const std::string flags = line_after(search.text, "best layout as additional flags: ");
  const std::string estimate = line_after(search.text, "\nestimate on ");
  EXPECT_THAT(
      flags, AllOf(HasSubstr("--micro-batch-size "), HasSubstr("--num-layers-per-virtual-pipeline-stage 0")));
  const std::string given = " --num-layers-per-virtual-pipeline-stage 1 --pipeline-model-parallel-size 2";
  const Result again = colonnade("plan --world-size 16 --hardware h100" + model + given + " " + flags);
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(line_after(again.text, "\nestimate on "), estimate);
  const Result file = colonnade("plan --world-size 16 --hardware h100 --config " + folder + "/best.yaml");
  ASSERT_EQ(file.code, 0) << file.text;
  EXPECT_EQ(line_after(file.text, "\nestimate on "), estimate);
  std::ifstream json(folder + "/found.json");
  const std::string text{std::istreambuf_iterator<char>(json), {}};
  EXPECT_THAT(text,
              AllOf(HasSubstr("\"candidates\""), HasSubstr("\"step_seconds\""), HasSubstr("\"flags\"")));
  std::filesystem::remove_all(folder);
}

TEST(Cli, SearchReportsAllItsRequirements) {
  const Result result = colonnade(std::string("plan --search --json /nowhere/x") + kModel);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, AllOf(HasSubstr("--hardware must be given with --search"),
                                 HasSubstr("--world-size must be given"),
                                 HasSubstr("--global-batch-size must be given with --search")));
}

TEST(Cli, UnwritableFilesAreReportedBeforeTheWork) {
  for (const std::string& line :
       {std::string("plan --json /nowhere/plan.json") + kModel, std::string("plan --svg /") + kModel,
        std::string("plan --memory-svg /") + kModel,
        std::string("checkpoint verify /tmp --json /nowhere/x.json"),
        std::string("data inspect /tmp/none --json /nowhere/x.json")}) {
    const Result result = colonnade(line);
    EXPECT_EQ(result.code, 2) << line << result.text;
    EXPECT_THAT(result.text, HasSubstr("must name a file that can be written"));
    EXPECT_EQ(count(result.text, "\n"), 1) << result.text;
  }
  const fs::path folder = fs::path(testing::TempDir()) / "over_its_input";
  fs::create_directories(folder);
  const std::string text = (folder / "x.json").string();
  std::ofstream(text) << "some text";
  const Result over = colonnade("tokenizer train --model-type byte-bpe --vocab-size 300 --input " + text +
                                " --output-prefix " + (folder / "x").string());
  EXPECT_EQ(over.code, 2);
  EXPECT_THAT(over.text, HasSubstr("which is an input"));
  std::string kept;
  std::getline(std::ifstream(text), kept);
  EXPECT_EQ(kept, "some text");
  fs::remove_all(folder);
}

TEST(Cli, MegatronsPreprocessFlagsAreRejectedWithTheReason) {
  const Result result = colonnade(
      "preprocess --input x.jsonl --output-prefix x --tokenizer-type GPT2BPETokenizer --vocab-file v "
      "--merge-file m "
      "--append-eod --keep-newlines --performance-dir p --workers 2");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text,
              AllOf(Not(HasSubstr("--vocab-file")), Not(HasSubstr("--keep-newlines")),
                    HasSubstr("--performance-dir is not supported"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(colonnade("preprocess --input x --output-prefix x --tokenizer-typ y").text,
              HasSubstr("did you mean --tokenizer-type?"));
}

/// Number of settings given after `verb` that are reported as without effect; expects exit code 2 and no
/// other output.
int rejected(const std::string& verb, const std::string& typed) {
  const Result result = colonnade(verb + " " + typed);
  EXPECT_EQ(result.code, 2) << result.text;
  const int faults = count(result.text, "has no effect in `");
  EXPECT_EQ(count(result.text, "\n"), faults == 1 ? 1 : faults + 1) << result.text;
  return faults;
}

TEST(Cli, EvaluateAndGenerateRejectGivenSettingsThatTheyDoNotRead) {
  const std::string training =
      "--save zz --train-iters 5 --optimizer sgd --clip-grad 3 --log-interval 7 --num-workers 5 --lr 3 "
      "--lr-decay-style cosine --hidden-dropout 0.5 --use-distributed-optimizer --sequence-parallel "
      "--no-load-optim --tensorboard-dir t --loss-scale 2";
  const std::string data = " --data-path nosuch --eval-iters 3 --micro-batch-size 7 --seq-length 8";
  EXPECT_EQ(rejected("generate --load run --prompt x", training + data), 18);
  EXPECT_EQ(rejected("evaluate --load run --tokens f", training + data), 17);
  EXPECT_EQ(rejected("evaluate --load run", training), 14);
  EXPECT_EQ(rejected("evaluate --load run --tokens f", "--seed 3"), 1);
  const Result one = colonnade("generate --load run --prompt x --lr 3");
  EXPECT_THAT(one.text, HasSubstr("--lr has no effect in `generate`; got 3; remove it"));
  EXPECT_EQ(count(colonnade("generate --load run --prompt x --lr much").text, "--lr"), 2) << "reported once";
}

TEST(Cli, YamlFileMayContainSettingsThatAVerbDoesNotRead) {
  const fs::path file = fs::temp_directory_path() / ("cli-" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(file) << "lr: 3\nsave: zz\nuse_distributed_optimizer: true\n";
  for (const std::string verb : {"evaluate --mock-data", "generate --prompt x"}) {
    const Result result = colonnade(verb + " --load /nowhere --config " + file.string());
    EXPECT_EQ(result.code, 3) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("/nowhere"), Not(HasSubstr("does nothing"))));
  }
  fs::remove(file);
}

TEST(Cli, HelpOfAVerbShowsTheSettingsThatItReads) {
  EXPECT_THAT(colonnade("help generate").text,
              AllOf(HasSubstr("\n  --load"), HasSubstr("\n  --prompt "), Not(HasSubstr("\n  --lr ")),
                    Not(HasSubstr("\n  --data-path")), Not(HasSubstr("--ckpt-step"))));
  EXPECT_THAT(colonnade("evaluate --help").text,
              AllOf(HasSubstr("\n  --data-path"), Not(HasSubstr("\n  --lr "))));
  EXPECT_THAT(colonnade("generate --help-all").text,
              AllOf(HasSubstr("\n  --ckpt-step"), Not(HasSubstr("\n  --clip-grad"))));
  EXPECT_THAT(colonnade("plan --help-all").text, HasSubstr("\n  --clip-grad"));
  EXPECT_THAT(colonnade("help generate --prompt").text, HasSubstr("prompt text"));
  EXPECT_EQ(colonnade("help generate --seed").text, colonnade("help --seed").text);
  for (const std::string line : {"help generate --max-length", "generate --load run --max-length 3"})
    EXPECT_THAT(colonnade(line).text, HasSubstr("did you mean --max-new-tokens?")) << line;
}

/// Expects exit code 2 and one error line per fault.
void expect_faults(const std::string& line, const std::vector<std::string>& faults,
                   const std::string& variables = "") {
  const Result result = colonnade(line, variables);
  EXPECT_EQ(result.code, 2) << line << result.text;
  for (const std::string& fault : faults) EXPECT_THAT(result.text, HasSubstr(fault));
  EXPECT_EQ(count(result.text, "; got "), static_cast<int>(faults.size())) << result.text;
}

TEST(Cli, FaultsInAVerbsOwnFlagsHaveTheCommonForm) {
  expect_faults("launch --nnodes abc --grace-period soon -- pretrain",
                {"--nnodes or PET_NNODES must be an integer; got 'abc'; write e.g. --nnodes 1",
                 "--grace-period must be a number; got 'soon'; write e.g. --grace-period 10"});
  expect_faults("launch -- pretrain", {"--nnodes or PET_NNODES must be an integer; got 'abc'"},
                "PET_NNODES=abc ");
  expect_faults("launch --max-restarts 99999999999 -- pretrain",
                {"--max-restarts must be an integer of normal size; got '99999999999'"});
  expect_faults("launch --max-restarts", {"--max-restarts requires a value; got none"});
  expect_faults("launch --nproc-per-node x -- pretrain",
                {"must be a number or auto; got 'x'; write e.g. --nproc-per-node 4"});
  expect_faults("preprocess --input x --output-prefix y --workers 0",
                {"--workers must be an integer, 1 to 4096; got '0'; write e.g. 1"});
  expect_faults("preprocess", {"--input must be given; got none; write --input TEXT",
                               "--output-prefix must be given; got none; write --output-prefix TEXT"});
  expect_faults(
      "preprocess --input x --output-prefix y --split-sentences --punkt-model nosuch --on-error repair",
      {"--on-error must be stop or skip; got 'repair'"});
  expect_faults(
      "preprocess --input x --output-prefix y --split-sentences --punkt-model nosuch",
      {"--split-sentences requires a folder with a Punkt model; got nosuch, which is no folder; get one with "
       "`python3 -m nltk.downloader punkt_tab`"});
  expect_faults("data inspect x --seq-length none", {"--seq-length must be an integer; got \"none\""});
  expect_faults("checkpoint", {"checkpoint requires a sub-verb; got none; write one of inspect"});
  expect_faults("checkpoint verify", {"PATH must be given; got none"});
}

TEST(Cli, DryRunsCompareThePlanWithTheCode) {
  const std::string model =
      " --num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 61 --seq-length 16 "
      "--max-position-embeddings 16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --world-size 4";
  const Result one = colonnade("plan --dry-run --rank 3" + model);
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_THAT(one.text, HasSubstr("on each of 1 ranks"));
  const Result all = colonnade("plan --dry-run --all" + model);
  ASSERT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("every send matches its receive"));
  const Result none = colonnade("plan --dry-run" + model);
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.text, HasSubstr("--dry-run requires one of --rank and --all; got neither"));
  const Result far = colonnade("plan --dry-run --rank 4" + model);
  EXPECT_EQ(far.code, 2);
  EXPECT_THAT(far.text, HasSubstr("--rank must be a rank of the world; got 4 of 4"));
  EXPECT_THAT(colonnade("plan --all" + model).text, HasSubstr("--all requires --dry-run"));
}

TEST(Cli, PlanAssumesAnExpertImbalance) {
  const std::string model =
      kModel + std::string("--moe-ffn-hidden-size 16 --moe-router-topk 2 --num-experts 8 ");
  const std::string file = ::testing::TempDir() + "uneven.json";
  const std::string ranks = "--expert-model-parallel-size 4 --world-size 4 --micro-batch-size 1 ";
  const Result result =
      colonnade("plan --dry-run --all --expert-imbalance 1.5 --json " + file + " " + model + ranks);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text,
              HasSubstr("assumed: the most loaded expert rank of a layer receives 1.5 times the mean"));
  EXPECT_THAT(result.text, HasSubstr("assumed: in every layer the first expert rank receives 1.5 times"));
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json.at("experts").at("assumed_imbalance"), 1.5);
  const nlohmann::json& seen = json.at("dry_run");
  EXPECT_GT(seen.at(0).at("peak_bytes"), seen.at(1).at("peak_bytes"));
  const std::string flag = "plan --expert-imbalance ";
  expect_faults(flag + "1.5" + kModel, {"--expert-imbalance requires an MoE model (--num-experts)"});
  expect_faults(flag + "1.5 " + model, {"--expert-imbalance requires expert parallelism"});
  for (const char* value : {"0.5 ", "4.5 "})
    expect_faults(flag + value + model + ranks, {"must be from 1 to 4, the largest possible load of an"});
  expect_faults(flag + "much " + model + ranks, {"--expert-imbalance must be a number; got 'much'"});
  expect_faults(
      flag + "1.5 --moe-expert-capacity-factor 1.2 " + model + ranks,
      {"must be from 1 to 1.2, the largest possible load of an expert rank relative to the mean, limited by "
       "--moe-expert-capacity-factor"});
  expect_faults(
      flag + "1.1 --moe-expert-capacity-factor 1.2 --moe-pad-expert-input-to-capacity " + model + ranks,
      {"--expert-imbalance has no effect with padded expert inputs"});
}

TEST(Cli, MegatronsPreprocessFlagsAreReadNoOpsOrRejected) {
  const fs::path folder = fs::temp_directory_path() / ("cli-flags-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "in.jsonl") << "{\"text\": \"1 2\"}\n";
  const std::string line = "preprocess --input " + (folder / "in.jsonl").string() + " --output-prefix " +
                           (folder / "x").string() + " --tokenizer-type NullTokenizer --vocab-size 9 ";
  const Result defaults =
      colonnade(line +
                "--dataset-impl mmap --lang english --workers-to-check 16 32 64 --max-documents 100000 "
                "--partitions 1");
  EXPECT_EQ(defaults.code, 0) << defaults.text;
  EXPECT_EQ(count(defaults.text, "\n"), 1) << "only its result: " << defaults.text;
  const Result newlines = colonnade(line + "--keep-newlines");
  EXPECT_EQ(newlines.code, 0) << newlines.text;
  EXPECT_THAT(newlines.text, HasSubstr("--keep-newlines: has no effect without --split-sentences"));
  expect_faults(
      line + "--dataset-impl lazy --lang german --workers-to-check 4 8 --max-documents 7 --punkt-model m",
      {"--dataset-impl must be mmap, the only data set format; got lazy",
       "--lang requires --split-sentences; got german without it",
       "--workers-to-check requires --find-optimal-num-workers; got 4 8 without",
       "--max-documents requires --find-optimal-num-workers; got 7",
       "--punkt-model requires --split-sentences; got m without"});
  const Result measured = colonnade(line + "--find-optimal-num-workers --workers-to-check 1 2");
  EXPECT_EQ(measured.code, 0) << measured.text;
  EXPECT_THAT(measured.text, AllOf(HasSubstr("1 workers: "), HasSubstr("2 workers: "),
                                   HasSubstr("the fastest is --workers ")));
  EXPECT_THAT(colonnade("help preprocess").text,
              AllOf(HasSubstr("--dataset-impl"), HasSubstr("--keep-newlines"), HasSubstr("--lang")));
  fs::remove_all(folder);
}

TEST(Cli, CompletionOffersEveryVerbsOwnFlags) {
  const auto offers = [](const std::string& words, const std::string& wanted) {
    const std::string test =
        "source <(" COLONNADE_EXECUTABLE " completion bash); COMP_WORDS=(colonnade " + words +
        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _colonnade; [[ \" ${COMPREPLY[*]} \" == *\" " + wanted +
        " \"* ]]";
    return std::system(("bash -c '" + test + "'").c_str()) == 0;
  };
  EXPECT_TRUE(offers("launch --max", "--max-restarts"));
  EXPECT_TRUE(offers("generate --pro", "--prompt"));
  EXPECT_TRUE(offers("evaluate --split-n", "--split-name"));
  EXPECT_TRUE(offers("plan --world", "--world-size"));
  EXPECT_TRUE(offers("preprocess --in", "--input"));
  EXPECT_TRUE(offers("tokenizer train --model", "--model-type"));
  EXPECT_TRUE(offers("checkpoint ver", "verify"));
  EXPECT_TRUE(offers("data inspect --sam", "--samples"));
  EXPECT_TRUE(offers("data inspect --train-data", "--train-data-path"));
  EXPECT_TRUE(offers("data merge --multi", "--multimodal"));
  EXPECT_TRUE(offers("completion z", "zsh"));
  EXPECT_TRUE(offers("help preproc", "preprocess"));
}

TEST(Cli, LaunchRejectsInvalidFlagsWithExitCode2) {
  const Result unknown = colonnade("launch --nproc-per-nod 2 -- pretrain");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("did you mean --nproc-per-node?"));
  const Result empty = colonnade("launch --nproc-per-node 2");
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.text, HasSubstr("launch needs a command to start"));
  EXPECT_EQ(colonnade("launch --nproc-per-node two -- pretrain").code, 2);
}

/// A log folder that is removed after the test.
class CliLaunch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cli-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string flags() const { return "launch --nproc_per_node=2 --log-dir " + folder_.string(); }
  fs::path folder_;
};

TEST_F(CliLaunch, StartsAProgramAndPrintsTheOutputOfRankZero) {
  const Result result = colonnade(flags() + " -- " COLONNADE_FAKE_RANK " --steps 2");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("rank 0: step 2 done"), HasSubstr("launch: 2 ranks, world of 2")));
  EXPECT_EQ(colonnade(flags() + " --no-verb -- true").code, 0);
}

TEST_F(CliLaunch, StartsAVerbAndReturnsItsExitCode) {
  const Result result = colonnade(flags() + " -- no-such-verb");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, HasSubstr("ranks 0, 1 ended with exit code 2 (settings wrong)"));
  EXPECT_EQ(count(result.text, "no-such-verb must be a verb"), 1) << result.text;
  EXPECT_THAT(result.text, AllOf(Not(HasSubstr("lost")), Not(HasSubstr("last lines of"))));
}

TEST_F(CliLaunch, ReadsTheLogFolderFromTheRanksYaml) {
  std::ofstream(folder_ / "run.yaml") << "save: " << (folder_ / "run").string() << "\nnum_layers: none\n";
  const Result result = colonnade("launch -- pretrain gpt --config " + (folder_ / "run.yaml").string());
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text, HasSubstr("logs in " + (folder_ / "run/logs").string()));
  EXPECT_EQ(count(result.text, "num_layers must be an integer"), 1) << result.text;
}

TEST_F(CliLaunch, RankZeroLogsItsRankAndThreads) {
  const std::string run =
      "pretrain gpt --seq-length 8 --micro-batch-size 1 --train-iters 1 --lr 1e-3 --mock-data "
      "--eval-iters 0 --save-interval 9 --save " +
      (folder_ / "run").string() + kModel;
  const Result placed = colonnade(run, "RANK=0 WORLD_SIZE=1 OMP_NUM_THREADS=1 ");
  EXPECT_EQ(placed.code, 0) << placed.text;
  EXPECT_THAT(placed.text,
              HasSubstr("rank 0 of 1 (RANK, WORLD_SIZE), local rank 0 (the only rank); 1 threads per rank"));
}

TEST_F(CliLaunch, ReadsKubeflowsVariables) {
  const std::string logs = "launch --log-dir " + folder_.string() + " -- " COLONNADE_FAKE_RANK;
  const Result placed = colonnade(
      logs, "PET_NNODES=2 PET_NPROC_PER_NODE=2 PET_NODE_RANK=0 PET_MASTER_ADDR=head PET_MASTER_PORT=4711 ");
  EXPECT_EQ(placed.code, 0) << placed.text;
  EXPECT_THAT(
      placed.text,
      HasSubstr("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=head MASTER_PORT=4711"));
  const Result each_gpu = colonnade(logs, "PET_NPROC_PER_NODE=auto CUDA_VISIBLE_DEVICES=0,3,5 ");
  EXPECT_THAT(each_gpu.text, HasSubstr("RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3"));
}

}  // namespace
