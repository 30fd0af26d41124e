// Chat samples: packed and single conversations, loss and attention masks, malformed files.
#include "colonnade/data/samples/sft/sft_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/data/dataset_usage.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "colonnade/data/samples/sft/sft_dataset.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A conversation of 20 to 50 tokens whose first question is its number.
json talk(int number) {
  json messages = json::array();
  for (int turn = 0; turn <= number % 3; ++turn) {
    messages.push_back({{"role", "user"}, {"content", std::to_string(number)}});
    messages.push_back({{"role", "assistant"}, {"content", "It is " + std::to_string(number * 7 + turn)}});
  }
  return {{"messages", messages}};
}

/// A folder with a tokenizer, a chat template, and 40 conversations in two files.
struct Files {
  Files() {
    std::filesystem::create_directory(folder / "tok");
    std::filesystem::create_directory(folder / "chats");
    std::filesystem::copy_file(test::vector_path("tokenizers/qwen2_bpe.json"), folder / "tok/tokenizer.json");
    std::filesystem::copy_file(test::vector_path("chat/templates/chatml.jinja"),
                               folder / "tok/chat_template.jinja");
    std::ofstream first(folder / "chats/a.jsonl"), second(folder / "chats/b.jsonl"),
        other(folder / "chats/readme.txt");
    for (int i = 0; i < 40; ++i) (i < 25 ? first : second) << talk(i).dump() << (i % 9 == 0 ? "\n\n" : "\n");
    other << "not chats";
    data.sft = true;
    data.tokenizer_model = folder / "tok";
    data.data_path = {folder / "chats"};
    data.data_cache_path = folder / "cache";
    data.split = "1,0,0";
    training.seq_length = 127;
    training.micro_batch_size = training.global_batch_size = 2;
    training.train_iters = 3;
    training.eval_iters = 0;
    tokenizer = tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = data.tokenizer_model});
  }
  void pack() { data.reset_position_ids = data.reset_attention_mask = true; }
  void pack_by_sequence() { data.inter_document_masking = true; }
  [[nodiscard]] Splits open() const { return open_sft_batches(data, training, *tokenizer, 1155); }
  [[nodiscard]] std::string fault() const {
    return test::message_of<DataError>([&] { (void)open(); });
  }
  void chats(const std::string& text) {
    std::ofstream(folder / "chats.jsonl") << text;
    data.data_path = {folder / "chats.jsonl"};
  }

  test::TempFolder folder;
  config::Data data;
  config::Training training;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
};

using Numbers = std::vector<std::int64_t>;

/// The tokens of a sample, its text, and the text with a loss.
struct Row {
  Numbers tokens, positions;
  std::string text, learnt;
  std::vector<std::size_t> starts;
};

Row row_of(const HostBatch& batch, std::size_t row, const tokenizers::Tokenizer& tokenizer) {
  const auto s = static_cast<std::size_t>(batch.seq);
  Row result;
  std::vector<std::int32_t> ids, learnt;
  for (std::size_t i = row * s; i < (row + 1) * s; ++i) {
    result.tokens.push_back(batch.tokens[i]);
    if (!batch.position_ids.empty()) result.positions.push_back(batch.position_ids[i]);
    ids.push_back(static_cast<std::int32_t>(batch.tokens[i]));
    if (!batch.position_ids.empty() && batch.position_ids[i] == 0) result.starts.push_back(i - row * s);
    if (batch.loss_mask[i] > 0) learnt.push_back(static_cast<std::int32_t>(batch.labels[i]));
  }
  result.text = tokenizer.decode_with_special(ids);
  result.learnt = tokenizer.decode_with_special(learnt);
  return result;
}

std::string answers(int number) {
  std::string text;
  for (int turn = 0; turn <= number % 3; ++turn)
    text += "It is " + std::to_string(number * 7 + turn) + "<|im_end|>\n";
  return text;
}

/// The number of the conversation that starts at `text`.
int number_at(const std::string& text) {
  constexpr std::string_view kBegin = "<|im_start|>user\n";
  EXPECT_TRUE(text.starts_with(kBegin)) << text;
  return std::stoi(text.substr(kBegin.size()));
}

TEST(SftBatches, SingleConversationsHaveALossOnTheirAnswers) {
  const Files files;
  const auto batches = std::move(files.open()[0]);
  ASSERT_EQ(batches->size(), 40) << "one epoch is enough for six samples";
  std::set<int> seen;
  const HostBatch batch = batches->get(0, 40);
  EXPECT_TRUE(batch.cu_seqlens.empty());
  for (std::size_t i = 0; i < 40; ++i) {
    const Row row = row_of(batch, i, *files.tokenizer);
    const int number = number_at(row.text);
    EXPECT_EQ(row.learnt, answers(number));
    EXPECT_TRUE(row.positions.empty()) << "they continue through the padding";
    seen.insert(number);
  }
  EXPECT_EQ(seen.size(), 40U);
}

TEST(SftBatches, ReportsEpochsWithoutChangingTheOrder) {
  Files files;
  const auto order = [&] { return files.open()[0]->samples().orders().at(0); };
  EXPECT_EQ(order().epochs(), 1);
  files.training.train_iters = 41;  // 82 samples of 40 conversations
  EXPECT_EQ(order().epochs(), 3);
  EXPECT_EQ(order().passes, 1) << "the order is that of a shorter run";
  files.pack();
  EXPECT_GT(order().epochs(), 3);
}

TEST(SftBatches, PackedConversationsAreCompleteAndSeparate) {
  Files files;
  files.pack();
  const auto batches = std::move(files.open()[0]);
  const std::int64_t samples = batches->size();
  EXPECT_LT(samples, 20) << "several per sample";
  std::multiset<int> seen;
  const HostBatch batch = batches->get(0, samples);
  for (std::size_t i = 0; i < static_cast<std::size_t>(samples); ++i) {
    const Row row = row_of(batch, i, *files.tokenizer);
    std::string learnt;
    for (const std::size_t start : row.starts) {
      const std::vector<std::int32_t> ids(row.tokens.begin() + static_cast<std::ptrdiff_t>(start),
                                          row.tokens.end());
      const int number = number_at(files.tokenizer->decode_with_special(ids));
      seen.insert(number);
      learnt += answers(number);
    }
    EXPECT_EQ(row.learnt, learnt);
    const std::size_t s = 127;
    std::size_t first = 0;
    for (std::size_t query = 0; query < s; ++query) {
      if (row.positions[query] == 0) first = query;
      EXPECT_EQ(row.positions[query], static_cast<std::int64_t>(query - first));
      const auto at = static_cast<std::int64_t>(i * s + query);
      EXPECT_EQ(std::ranges::count(batch.cu_seqlens, at), query == first ? 1 : 0);
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(batch.cu_seqlens));
  EXPECT_EQ(batch.cu_seqlens.back(), samples * 127);
  EXPECT_EQ(seen.size(), 40U);
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 40U) << "each once per epoch";
}

TEST(SftBatches, InterDocumentMaskingPacksTheSameWay) {
  Files files, by_sequence;
  files.pack();
  by_sequence.pack_by_sequence();
  const HostBatch reset = files.open()[0]->get(0, 5), masked = by_sequence.open()[0]->get(0, 5);
  EXPECT_EQ(reset.tokens, masked.tokens);
  EXPECT_EQ(reset.position_ids, masked.position_ids);
  EXPECT_EQ(reset.cu_seqlens, masked.cu_seqlens);
}

TEST(SftBatches, OrderDependsOnlyOnTheSeedAndContinuesForMoreSamples) {
  Files files;
  files.pack();
  const auto tokens = [&](std::int64_t count) { return files.open()[0]->get(0, count).tokens; };
  const Numbers few = tokens(10);
  EXPECT_EQ(tokens(10), few) << "from the cache";
  files.training.train_iters = 50;
  const auto more = std::move(files.open()[0]);
  EXPECT_GE(more->size(), 100);
  EXPECT_EQ(more->get(0, 10).tokens, few);
  const HostBatch whole = more->get(0, 100), rest = more->get(96, 4);
  EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(), whole.tokens.end() - 4 * 127))
      << "as after a resume";
  files.training.seed = 7;
  EXPECT_NE(tokens(10), few);
}

TEST(SftBatches, SplitsAndBlendsConsistOfConversations) {
  Files files;
  files.data.split = "50,50,0";
  files.training.eval_iters = 1;
  files.training.eval_interval = 1;
  auto splits = files.open();
  ASSERT_NE(splits[1], nullptr);
  EXPECT_EQ(splits[0]->size(), 20);
  EXPECT_EQ(splits[1]->size(), 20);
  const std::string first = row_of(splits[1]->get(0, 1), 0, *files.tokenizer).text;
  EXPECT_GE(number_at(first), 20);
  files.data.data_path = {"0.5", files.folder / "chats/a.jsonl", "0.5", files.folder / "chats/b.jsonl"};
  files.data.split = "1,0,0";
  const HostBatch blended = files.open()[0]->get(0, 6);
  int of_second = 0;
  for (std::size_t i = 0; i < 6; ++i)
    of_second += number_at(row_of(blended, i, *files.tokenizer).text) >= 25 ? 1 : 0;
  EXPECT_EQ(of_second, 3);
}

TEST(SftBatches, MalformedLinesAreReported) {
  Files files;
  files.chats(talk(1).dump() + "\n\n{\"messages\": 3}\n");
  EXPECT_THAT(files.fault(),
              AllOf(HasSubstr("chats.jsonl line 3: "), HasSubstr("'messages' must be a list")));
  files.chats(talk(1).dump() + "\n{\"messages\": [{\"content\": \"a\"}]}\n");
  EXPECT_THAT(files.fault(), AllOf(HasSubstr("chats.jsonl line 2: "), HasSubstr("'role'")));
  files.chats("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
  EXPECT_THAT(files.fault(), AllOf(HasSubstr("chats.jsonl line 1: "), HasSubstr("'assistant'")));
  files.chats("{\"messages\": [{\"role\": \"assistant\"}]}");
  EXPECT_THAT(files.fault(), AllOf(HasSubstr("line 1: "), HasSubstr("chat_template.jinja: line 1: ")));
  files.chats("\xef\xbb\xbf" + talk(1).dump() + "\n");
  EXPECT_THAT(files.fault(),
              HasSubstr("chats.jsonl line 1 must be a JSON object; got a byte order mark (U+FEFF) "
                        "before it; remove it with sed"));
  files.chats("\n");
  EXPECT_THAT(files.fault(), HasSubstr("must hold a conversation"));
  files.data.data_path = {files.folder / "tok"};
  EXPECT_THAT(files.fault(), HasSubstr("must hold .jsonl"));
  std::filesystem::create_symlink("loop", files.folder / "loop");
  files.data.data_path = {files.folder / "loop"};
  EXPECT_THAT(test::message_of<Error>([&] { (void)files.open(); }),
              HasSubstr("loop must be readable; got Too many levels"));
  files.data.data_path = {files.folder / "nowhere"};
  EXPECT_THAT(files.fault(), HasSubstr("must be a file of chat messages"));
}

/// More text than is in flight at a time, in conversations of many sizes.
TEST(SftBatches, LargeFilesAreEncodedInChunks) {
  Files f;
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) {
    json line = talk(i);
    line["messages"][0]["content"] =
        std::to_string(i) + std::string(static_cast<std::size_t>(i % 40) * 4000, 'a');
    lines.push_back(line.dump());
    text += lines.back() + "\n";
  }
  f.chats(text);
  const chat_template::ChatTemplate chats = chat_template::read_template({f.data.tokenizer_model, ""});
  const auto read = [&](const IndexCache& cache) {
    return Conversations(f.folder / "chats.jsonl", *f.tokenizer, chats, cache, "x");
  };
  const Conversations kept = read(IndexCache(f.folder / "large")), held = read(IndexCache({}));
  ASSERT_EQ(kept.num_sequences(), 400);
  for (int i = 0; i < 400; ++i) {
    const auto ids = marked_ids(
        chats.chat(chat_template::read_conversation(lines[static_cast<std::size_t>(i)])), *f.tokenizer);
    ASSERT_EQ(kept.length(i), std::ssize(ids)) << i;
    ASSERT_EQ(held.length(i), std::ssize(ids)) << i;
    Numbers tokens(ids.size()), same(ids.size());
    kept.tokens(i, 0, tokens);
    held.tokens(i, 0, same);
    ASSERT_EQ(tokens, same) << i;
    for (std::size_t at = 0; at < ids.size(); ++at)
      ASSERT_EQ(id_of(tokens[at]), ids[at] < 0 ? ~ids[at] : ids[at]);
  }
}

TEST(SftBatches, LinesOfManyMegabytesAreRejected) {
  Files f;
  f.chats(talk(1).dump() + "\n{\"messages\": \"" + std::string(17 << 20, 'a') + "\"}\n");
  EXPECT_THAT(f.fault(), AllOf(HasSubstr("chats.jsonl line 2"), HasSubstr("at most 16777216 bytes")));
}

TEST(SftBatches, LongConversationsAreTruncatedAndThoseWithoutAnAnswerLeftOut) {
  Files files;
  json question = talk(3), tail = talk(3);
  question["messages"][0]["content"] = std::string(600, 'q');
  tail["messages"][1]["content"] = std::string(600, 'z');
  files.chats(question.dump() + "\n");
  EXPECT_THAT(files.fault(),
              HasSubstr("the train split must hold a conversation with an answer within 128 tokens; got none "
                        "among 1 of 1; add data, change --split or raise --seq-length"));
  files.chats(question.dump() + "\n" + tail.dump() + "\n");
  const HostBatch batch = files.open()[0]->get(0, 1);
  EXPECT_EQ(batch.loss_mask.back(), 1.0F);
  EXPECT_EQ(files.open()[0]->size(), 6) << "the other conversation, six times";
}

TEST(SftBatches, AnEvaluationSplitWithoutAnAnswerIsEmptyWithAWarning) {
  Files files;
  json question = talk(3);
  question["messages"][0]["content"] = std::string(600, 'q');
  files.training.eval_iters = 1;
  files.training.eval_interval = 1;
  const auto open = [&](const std::string& split) {
    files.data.split = split;
    testing::internal::CaptureStderr();
    Splits splits = files.open();
    const std::string warning = testing::internal::GetCapturedStderr();
    return std::pair{std::move(splits), warning};
  };
  files.chats(talk(1).dump() + "\n" + question.dump() + "\n");
  const auto [splits, warning] = open("1,1,0");
  ASSERT_NE(splits[0], nullptr);
  EXPECT_EQ(splits[1], nullptr);
  EXPECT_THAT(
      warning,
      HasSubstr("warning: " + files.data.data_path[0] +
                ": the valid split must hold a conversation with an answer within 128 tokens; got none "
                "among 1 of 2; there will be no valid batches; add data"));
  const std::string without = files.data.data_path[0], with = files.folder / "chats";
  files.data.data_path.clear();
  files.data.train_data_path = {with};
  files.chats(question.dump() + "\n");
  files.data.data_path.clear();
  files.data.valid_data_path = {"0.5", with, "0.5", without};
  const auto [blended, blend_warning] = open("1,1,0");
  EXPECT_EQ(blended[1], nullptr);
  EXPECT_THAT(blend_warning,
              AllOf(HasSubstr("got none among 1 of 1; the valid split is not evaluated: a blend must"),
                    HasSubstr("; remove it from --valid-data-path"), Not(HasSubstr("--split"))));
  EXPECT_EQ(blend_warning.find("warning: " + without), blend_warning.rfind("warning: " + without))
      << "a single warning";
  files.data.train_data_path.clear();
  files.data.valid_data_path.clear();
  files.chats(talk(1).dump() + "\n" + question.dump() + "\n");
  EXPECT_THAT(open("1,0,0").second, Not(HasSubstr("must hold")));
  files.training.seq_length = 1023;
  EXPECT_NE(open("1,1,0").first[1], nullptr) << "it is long enough";
  files.training.seq_length = 127;
  files.chats(question.dump() + "\n" + talk(1).dump() + "\n");
  files.data.split = "1,1,0";
  EXPECT_THAT(files.fault(), HasSubstr("the train split must hold")) << "training requires one";
}

TEST(SftBatches, SourcesOfFlaggedTokensAreNotVisited) {
  const Files files;
  int texts = 0;
  files.open()[0]->samples().for_each_source([&](const TokenSource&, Range) { ++texts; });
  EXPECT_EQ(texts, 0);
}

TEST(SftBatches, MoreSamplesThanMemoryHoldsAreRejectedBeforePacking) {
  Files files;
  files.training.train_iters = 1'000'000'000'000;
  for (const bool packed : {false, true}) {
    if (packed) files.pack();
    EXPECT_THAT(test::message_of<ConfigError>([&] { (void)files.open(); }),
                AllOf(HasSubstr(files.data.data_path[0] + ": the indices of its samples must fit the memory"),
                      HasSubstr("got 2000000000000 samples")));
  }
}

TEST(SftBatches, UsageCountsInputsOnly) {
  Files files;
  json tail = talk(3);
  tail["messages"][1]["content"] = std::string(600, 'z');
  files.chats(tail.dump() + "\n" + talk(4).dump() + "\n");
  const auto batches = std::move(files.open()[0]);
  const SampleSource& source = batches->samples();
  DatasetUsage use(source.orders()[0]);
  const std::vector<DatasetUsage*> sets{&use};
  std::int64_t inputs = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    add_usage(source, i, i, sets);
    Numbers text(128);
    source.tokens(i, -1, text);
    inputs += std::count_if(text.begin(), text.end() - 1, [](std::int64_t token) { return token != -1; });
  }
  EXPECT_GT(inputs, 127) << "a full row and one that is not";
  EXPECT_EQ(use.tokens(), inputs);
}

TEST(SftBatches, AnswersWithoutAnEndOfTurnAreReportedEachTime) {
  Files files;
  const auto reported = [&](const std::string& chat_template) {
    files.data.chat_template = chat_template;
    testing::internal::CaptureStderr();
    (void)files.open();
    return testing::internal::GetCapturedStderr();
  };
  const std::string open = "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{% endfor %}";
  for (const char* when : {"built", "from the cache"})
    EXPECT_THAT(reported(open), HasSubstr("warning: " + files.data.data_path[0] +
                                          ": 79 of 79 answers end without a token that ends the turn"))
        << when;
  EXPECT_THAT(reported("{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '</s>' }}{% endfor %}"),
              Not(HasSubstr("answers end")));
}

TEST(SftBatches, NemotronFormatsRequireTheirTokens) {
  Files files;
  files.data.sft_tokenizer_prompt_format = "nemotron-h-aligned";
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)files.open(); }), HasSubstr("<SPECIAL_10>"));
}

}  // namespace
}  // namespace colonnade::data
