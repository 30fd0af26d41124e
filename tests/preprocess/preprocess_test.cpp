// Preprocessing of JSON lines: expected bytes, any number of workers, compressed inputs, errors by line.
#include "colonnade/preprocess/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;
namespace fs = std::filesystem;

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  isal_zstream stream;
  isal_deflate_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.end_of_stream = 1;
  stream.flush = NO_FLUSH;
  stream.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<std::uint32_t>(text.size());
  stream.next_out = reinterpret_cast<std::uint8_t*>(packed.data());
  stream.avail_out = static_cast<std::uint32_t>(packed.size());
  EXPECT_EQ(isal_deflate(&stream), COMP_OK);
  packed.resize(stream.total_out);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

class PreprocessTest : public ::testing::Test {
 protected:
  /// Bytes of PREFIX_text_document.bin and .idx after preprocessing `text`.
  std::pair<std::string, std::string> run(const std::string& text, int workers = 1,
                                          std::int64_t chunk = 1 << 20) {
    write(folder_ / "in.jsonl", text);
    const PreprocessOptions options{.inputs = {folder_ / "in.jsonl"},
                                    .output_prefix = folder_ / "out",
                                    .append_eod = true,
                                    .workers = workers,
                                    .chunk_bytes = chunk};
    progress_ = preprocess(options, *tokenizer_);
    return {read_file(folder_ / "out_text_document.bin"), read_file(folder_ / "out_text_document.idx")};
  }

  test::TempFolder folder_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_ =
      tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 256});
  PreprocessProgress progress_;
};

TEST_F(PreprocessTest, WritesTheExpectedBytes) {
  const auto [bin, idx] =
      run("{\"text\": \"1 2 3\"}\n"
          "{\"id\": {\"text\": [7]}, \"text\": [\"4\", \"\", \"5\\u00206\"], \"z\": null}\n"
          "\n"
          "{\"text\": \"\"}\n"
          "{\"text\": \"7\"}");
  EXPECT_EQ(bin, std::string("\1\0\2\0\3\0\xff\0\4\0\5\0\6\0\xff\0\7\0\xff\0", 20));
  std::string expected("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\4\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 34);
  for (const char length : {4, 1, 3, 2}) expected += std::string(1, length) + std::string(3, '\0');
  for (const char value : {0, 8, 10, 16, 0, 1, 3, 3, 4})
    expected += std::string(1, value) + std::string(7, '\0');
  EXPECT_EQ(idx, expected);
  EXPECT_EQ(progress_.documents, 4);
  EXPECT_EQ(progress_.tokens, 10);
}

TEST_F(PreprocessTest, OutputDoesNotDependOnWorkersChunksAndCompression) {
  tokenizer_ = tokenizers::make_tokenizer(
      {.type = "SentencePieceTokenizer", .model = test::vector_path("tokenizers/llama2_sp_bpe.model")});
  const std::string text = read_file(test::vector_path("indexed/corpus_gpt2.jsonl"));
  const auto expected = run(text);
  for (const int workers : {2, 5})
    for (const std::int64_t chunk : {100, 5000})
      EXPECT_TRUE(run(text, workers, chunk) == expected) << workers << " " << chunk;
  EXPECT_TRUE(run(gzip(text), 2, 1000) == expected);
  EXPECT_TRUE(run(gzip(text.substr(0, 5000)) + gzip(text.substr(5000)), 1, 1000) == expected);
  EXPECT_TRUE(run(zstd(text), 2, 1000) == expected);
  EXPECT_TRUE(run(zstd(text.substr(0, 5000)) + zstd(text.substr(5000)), 1, 1000) == expected);
  const std::string skippable("\x50\x2a\x4d\x18\4\0\0\0size", 12);  // as pzstd writes before each frame
  EXPECT_TRUE(run(skippable + zstd(text.substr(0, 5000)) + skippable + zstd(text.substr(5000)), 1, 1000) ==
              expected);

  const data::IndexedDataset data(folder_ / "out_text_document");
  EXPECT_EQ(data.num_documents(), 366);
  std::istringstream lines(text);
  std::int64_t document = 0;
  for (std::string line; std::getline(lines, line); ++document) {
    auto ids = tokenizer_->encode(nlohmann::json::parse(line)["text"].get<std::string>());
    ids.push_back(2);
    Ints tokens(ids.size());
    ASSERT_EQ(data.length(document), static_cast<std::int64_t>(ids.size()));
    data.tokens(document, 0, tokens);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin())) << document;
  }
}

TEST_F(PreprocessTest, WritesTheSameBytesAsMegatron) {
  struct Case {
    const char *name, *corpus, *tokenizer, *key;
    bool append_eod;
  };
  for (const Case& c : {Case{"gpt_uint16", "corpus_gpt", "gpt2_bpe", "text", true},
                        {"gpt2_uint16", "corpus_gpt2", "gpt2_bpe", "text", true},
                        {"bert_uint16", "corpus_bert", "bert_wordpiece", "sentences", false}}) {
    const auto tokenizer = tokenizers::make_tokenizer(
        {.type = "HuggingFaceTokenizer",
         .model = test::vector_path(fmt::format("tokenizers/{}.json", c.tokenizer))});
    const PreprocessOptions options{.inputs = {test::vector_path(fmt::format("indexed/{}.jsonl", c.corpus))},
                                    .output_prefix = folder_ / c.name,
                                    .json_keys = {c.key},
                                    .append_eod = c.append_eod,
                                    .workers = 2};
    preprocess(options, *tokenizer);
    for (const char* end : {".bin", ".idx"})
      EXPECT_TRUE(read_file(folder_ / fmt::format("{}_{}_document{}", c.name, c.key, end)) ==
                  read_file(test::vector_path(fmt::format("indexed/{}{}", c.name, end))))
          << c.name << end;
  }
}

TEST_F(PreprocessTest, MatchesTheIdsOfLlama3sTokenizer) {
  tokenizer_ = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/llama3_bpe.json")});
  run(read_file(test::vector_path("indexed/corpus_gpt2.jsonl")));
  const data::IndexedDataset ours(folder_ / "out_text_document"),
      theirs(test::vector_path("indexed/gpt_int32"));
  ASSERT_EQ(ours.num_tokens(), theirs.num_tokens());
  ASSERT_EQ(ours.num_documents(), theirs.num_documents());
  for (std::int64_t i = 0; i < theirs.num_documents(); ++i) {
    Ints own(static_cast<std::size_t>(ours.length(i))), expected(static_cast<std::size_t>(theirs.length(i)));
    ours.tokens(i, 0, own);
    theirs.tokens(i, 0, expected);
    EXPECT_EQ(own, expected) << i;
  }
}

TEST_F(PreprocessTest, WritesOneDatasetPerKey) {
  write(folder_ / "in.jsonl", "{\"b\": \"1\", \"a\": \"2 3\"}\n");
  const PreprocessOptions options{
      .inputs = {folder_ / "in.jsonl"}, .output_prefix = folder_ / "out", .json_keys = {"a", "b"}};
  preprocess(options, *tokenizer_);
  EXPECT_EQ(data::IndexedDataset(folder_ / "out_a_document").num_tokens(), 2);
  EXPECT_EQ(data::IndexedDataset(folder_ / "out_b_document").num_tokens(), 1);
}

/// Runs `use` in a child process with the given limits of open files.
template <typename Use>
void with_open_files(rlim_t soft, rlim_t hard, Use&& use) {
  const pid_t child = ::fork();
  if (child == 0) {
    const struct rlimit limit { soft, hard };
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(3);
    try {
      use();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(testing::Test::HasFailure() ? 2 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PreprocessTest, RaisesTheLimitOfOpenFiles) {
  write(folder_ / "in.jsonl", "{\"text\": \"1\"}\n");
  const PreprocessOptions options{
      .inputs = {folder_ / "in.jsonl"}, .output_prefix = folder_ / "out", .partitions = 60};
  with_open_files(50, 250, [&] { preprocess(options, *tokenizer_); });
  with_open_files(50, 150, [&] {
    const std::string message = test::message_of<ConfigError>([&] { preprocess(options, *tokenizer_); });
    EXPECT_THAT(message, HasSubstr("--partitions: "));
    EXPECT_THAT(message, HasSubstr("which need 212 files, and a limit of 150 (ulimit -Hn)"));
  });
}

/// Read position of this process in an open file; the file size if it is closed.
std::int64_t read_so_far(const fs::path& path) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry, gone) != fs::canonical(path)) continue;
    std::ifstream info("/proc/self/fdinfo" / entry.path().filename());
    std::string label;
    if (std::int64_t position = 0; info >> label >> position) return position;
  }
  return static_cast<std::int64_t>(fs::file_size(path));
}

/// Total size of all files next to `input`.
std::int64_t other_bytes(const fs::path& input) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(input.parent_path()))
    if (entry.path() != input) bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

// Data that are read but not written yet are in memory, including the chunk of this report. The slow callback
// lets the workers read ahead as far as they may.
TEST_F(PreprocessTest, HoldsAFewChunksPerWorkerWhateverTheInputSize) {
  constexpr std::int64_t kChunk = 1 << 14, kBuffer = 1 << 14;
  const fs::path input = folder_ / "in.jsonl";
  std::string text;
  while (text.size() < 256 * kChunk)
    text += "{\"text\": \"1 22 33 44 55 66 77 88 99 100 111 122 133 144\"}\n";
  write(input, text);
  const PreprocessOptions options{
      .inputs = {input}, .output_prefix = folder_ / "out", .workers = 3, .chunk_bytes = kChunk};
  std::int64_t written = 0, most_text = 0, most_tokens = 0;
  PreprocessEvents events;
  events.progress = [&](const PreprocessProgress& progress) {
    if (progress.documents == 0) return;  // nothing has been read
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    most_text = std::max(most_text, read_so_far(input) - written);
    written = progress.text_bytes;
    most_tokens = std::max(most_tokens, 2 * progress.tokens - other_bytes(input));
  };
  preprocess(options, *tokenizer_, events);
  EXPECT_LE(most_text, 2 * options.workers * kChunk);
  EXPECT_LE(most_tokens, kBuffer);
}

TEST_F(PreprocessTest, SkipsAndReportsBadLinesUnderAllKeys) {
  const std::string good = "{\"text\": \"1 2\", \"b\": \"3\"}\n";
  const std::vector<std::string> bad{R"({"text": "1")",
                                     R"([1])",
                                     R"({"b": "3"})",
                                     R"({"text": "4"})",
                                     R"({"text": 1})",
                                     R"({"text": "5", "b": ["6", 7]})",
                                     "{\"text\": \"\xff\"}",
                                     R"({"text": "300"})",
                                     R"({"text": ")" + std::string(2000, ' ') + "1\"}"};
  std::string text, only_good;
  std::vector<int> numbers;
  for (int line = 1, i = 0; i < 40; ++i) {
    text += good + "\n";
    only_good += good;
    line += 2;
    if (i % 4 != 0) continue;
    text += bad[static_cast<std::size_t>(i / 4) % bad.size()] + "\n";
    numbers.push_back(line++);
  }
  PreprocessOptions options{.inputs = {folder_ / "in.jsonl"},
                            .output_prefix = folder_ / "good",
                            .json_keys = {"text", "b"},
                            .append_eod = true,
                            .longest_line = 1000};
  write(folder_ / "in.jsonl", only_good);
  preprocess(options, *tokenizer_);
  write(folder_ / "in.jsonl", text);
  EXPECT_THAT(test::message_of<DataError>([&] { preprocess(options, *tokenizer_); }),
              HasSubstr("--on-error skip skips such lines"));
  options.output_prefix = folder_ / "skipped";
  options.skip_bad_lines = true;
  for (const int workers : {1, 3}) {
    for (const std::int64_t chunk : {100, 100000}) {
      options.workers = workers;
      options.chunk_bytes = chunk;
      std::vector<std::string> reported;
      PreprocessEvents events;
      events.skipped = [&reported](const std::string& why) { reported.push_back(why); };
      const PreprocessProgress done = preprocess(options, *tokenizer_, events);
      EXPECT_EQ(done.documents, 40);
      EXPECT_EQ(done.skipped, static_cast<std::int64_t>(numbers.size()));
      ASSERT_EQ(reported.size(), numbers.size());
      for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_THAT(reported[i],
                    testing::ContainsRegex(fmt::format("in\\.jsonl line {}(:| must) ", numbers[i])));
      EXPECT_THAT(reported[6], HasSubstr("bytes that are not UTF-8"));
      EXPECT_THAT(reported[8], HasSubstr("must be at most 1000 bytes; got 2013"));
      for (const char* end : {"text_document.bin", "text_document.idx", "b_document.bin", "b_document.idx"})
        EXPECT_TRUE(read_file(folder_ / fmt::format("skipped_{}", end)) ==
                    read_file(folder_ / fmt::format("good_{}", end)))
            << end;
    }
  }
}

TEST_F(PreprocessTest, KeepsOnlyTheStartOfAGiganticLine) {
  std::string text = "{\"text\": \"1\"}\n" + std::string(5'000'000, 'x') + "\n{\"text\": \"2\"}\n";
  for (const std::string& file : {text, gzip(text), text + std::string(300'000, 'y')}) {
    write(folder_ / "in.jsonl", file);
    corpus::LineReader reader(folder_ / "in.jsonl", 1000, {.longest = 100'000});
    std::vector<corpus::LineChunk> chunks;
    std::size_t most = 0;
    for (corpus::LineChunk chunk; reader.next(chunk); chunks.push_back(chunk))
      most = std::max(most, chunk.text.capacity());
    EXPECT_LE(most, 2000U);
    ASSERT_GE(chunks.size(), 3U);
    EXPECT_EQ(chunks[1].too_long, 5'000'000);
    EXPECT_EQ(chunks[1].begin.line, 2);
    EXPECT_EQ(chunks[2].begin.line, 3);
    EXPECT_EQ(chunks[2].begin.byte, 14 + 5'000'001);
    EXPECT_EQ(chunks[2].text, "{\"text\": \"2\"}\n");
    EXPECT_EQ(chunks.back().too_long, chunks.size() == 4 ? 300'000 : 0);
  }
}

TEST_F(PreprocessTest, AReaderResumesAtAnyLine) {
  const std::string text = "one\ntwo\n\nthree\nfour\n";
  for (const std::string& file : {text, gzip(text), zstd(text)}) {
    write(folder_ / "in.jsonl", file);
    corpus::LineReader whole(folder_ / "in.jsonl", 5);
    std::string seen;
    for (corpus::LineChunk chunk; whole.next(chunk);) {
      seen += chunk.text;
      corpus::LineReader rest(folder_ / "in.jsonl", 1000, {.longest = 1000}, chunk.end);
      corpus::LineChunk after;
      EXPECT_EQ(rest.next(after), seen.size() < text.size());
      EXPECT_EQ(seen + after.text, text);
      EXPECT_EQ(after.begin.line, 1 + std::count(seen.begin(), seen.end(), '\n'));
    }
  }
}

/// The lines of the text for whose index `wanted` returns true.
template <typename Wanted>
std::string lines_where(const std::string& text, Wanted&& wanted) {
  std::istringstream lines(text);
  std::string out, line;
  for (std::int64_t i = 0; std::getline(lines, line); ++i)
    if (wanted(i)) out += line + "\n";
  return out;
}

TEST_F(PreprocessTest, PartitionsAreDatasetsOfTheirOwnAndAreMerged) {
  std::string text;
  for (int i = 0; i < 23; ++i) text += fmt::format("{{\"text\": \"{} {}\"}}\n", i, 2 * i);
  const auto whole = run(text);
  for (const bool sequential : {false, true}) {
    for (const std::int64_t partitions : {2, 5, 30}) {
      write(folder_ / "in.jsonl", text);
      PreprocessOptions options{.inputs = {folder_ / "in.jsonl"},
                                .output_prefix = folder_ / "out",
                                .append_eod = true,
                                .workers = 3,
                                .chunk_bytes = 60,
                                .partitions = partitions,
                                .keep_sequential = sequential};
      preprocess(options, *tokenizer_);
      const std::int64_t each = (23 + partitions - 1) / partitions;
      std::string in_order;
      for (std::int64_t p = 0; p < partitions; ++p) {
        const std::string own =
            lines_where(text, [&](std::int64_t i) { return (sequential ? i / each : i % partitions) == p; });
        in_order += own;
        if (own.empty()) {
          EXPECT_EQ(data::IndexedDataset(folder_ / fmt::format("out_{}_text_document", p)).num_documents(),
                    0);
          continue;
        }
        write(folder_ / "own.jsonl", own);
        preprocess({.inputs = {folder_ / "own.jsonl"}, .output_prefix = folder_ / "own", .append_eod = true},
                   *tokenizer_);
        for (const char* end : {".bin", ".idx"})
          EXPECT_TRUE(read_file(folder_ / fmt::format("out_{}_text_document{}", p, end)) ==
                      read_file(folder_ / fmt::format("own_text_document{}", end)))
              << p << end;
      }
      const std::pair merged{read_file(folder_ / "out_text_document.bin"),
                             read_file(folder_ / "out_text_document.idx")};
      EXPECT_EQ(merged == whole, sequential || partitions > 23) << partitions;
      EXPECT_TRUE(merged == run(in_order)) << partitions;
    }
  }
}

TEST_F(PreprocessTest, SplitsTextsIntoSentences) {
  write(folder_ / "in.jsonl", "{\"text\": \"1 2? 3 4. 5\"}\n{\"text\": \"6\"}\n");
  PreprocessOptions options{.inputs = {folder_ / "in.jsonl"},
                            .output_prefix = folder_ / "out",
                            .append_eod = true,
                            .punkt_model = test::vector_path("punkt")};
  const auto tokenizer = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/gpt2_bpe.json")});
  preprocess(options, *tokenizer);
  const auto sequences = [&](const std::string& prefix) {
    const data::IndexedDataset set(prefix);
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < set.num_sequences(); ++i) {
      Ints ids(static_cast<std::size_t>(set.length(i)));
      set.tokens(i, 0, ids);
      texts.push_back(tokenizer->decode(std::vector<std::int32_t>(ids.begin(), ids.end())));
    }
    return texts;
  };
  EXPECT_THAT(sequences(folder_ / "out_text_sentence"), testing::ElementsAre("1 2?", "3 4.", "5", "6"));
  EXPECT_EQ(data::IndexedDataset(folder_ / "out_text_sentence").num_documents(), 2);
  options.keep_newlines = true;
  preprocess(options, *tokenizer);
  EXPECT_THAT(sequences(folder_ / "out_text_sentence"), testing::ElementsAre("1 2? ", "3 4. ", "5", "6"));
}

TEST_F(PreprocessTest, MeasuresWorkersWithoutWriting) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "{\"text\": \"1 2 3\"}\n";
  write(folder_ / "in.jsonl", text);
  const PreprocessOptions options{
      .inputs = {folder_ / "in.jsonl"}, .output_prefix = folder_ / "out", .chunk_bytes = 100};
  const std::vector<double> rates = measure_preprocess(options, *tokenizer_, {1, 2, 3}, 100);
  ASSERT_EQ(rates.size(), 3U);
  for (const double rate : rates) EXPECT_GT(rate, 0.0);
  EXPECT_EQ(folder_.num_files(), 1U);
}

// Sixteen long texts and eight threads: the tokenizer never holds more than the limit.
TEST_F(PreprocessTest, LongTextsAreEncodedOneAtATime) {
  struct Counting final : tokenizers::Tokenizer {
    std::vector<std::int32_t> encode(std::string_view text) const override {
      const std::int64_t now = inside += static_cast<std::int64_t>(text.size());
      for (std::int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      inside -= static_cast<std::int64_t>(text.size());
      return {1};
    }
    std::string decode(std::span<const std::int32_t>) const override { return ""; }
    std::int64_t vocab_size() const override { return 2; }
    tokenizers::SpecialIds special() const override { return {}; }
    std::int32_t eod() const override { return 0; }
    mutable std::atomic<std::int64_t> inside{0}, most{0};
  };
  std::string text;
  for (int i = 0; i < 16; ++i) text += "{\"text\": \"" + std::string(100'000, 'a') + "\"}\n";
  write(folder_ / "in.jsonl", text);
  const Counting tokenizer;
  preprocess({.inputs = {folder_ / "in.jsonl"},
              .output_prefix = folder_ / "out",
              .workers = 8,
              .chunk_bytes = 100'000,
              .longest_line = 250'000},
             tokenizer);
  EXPECT_GE(tokenizer.most, 100'000);
  EXPECT_LE(tokenizer.most, 250'000);
}

TEST_F(PreprocessTest, ReportsDamageOfCompressedFiles) {
  const auto fault = [&](const std::string& packed) {
    return test::message_of<DataError>([&] { run(packed); });
  };
  const std::string whole = gzip("{\"text\": \"1\"}\n");
  std::string sum = whole, method = whole;
  sum[sum.size() - 8] ^= 1;
  method[2] = 7;
  EXPECT_THAT(fault(sum), HasSubstr("must be complete gzip data; got data with a wrong checksum; copy"));
  EXPECT_THAT(fault(method), HasSubstr("got another method than deflate;"));
  EXPECT_THAT(fault(whole.substr(0, 10) + "\7"), HasSubstr("got damaged data;"));
  // A frame with a window of 1 GiB.
  EXPECT_THAT(fault(std::string("\x28\xb5\x2f\xfd\0\xa0\1\0\0", 9)),
              HasSubstr("compressed with a window of at most 128 MiB; got a larger one; decompress it"));
}

TEST_F(PreprocessTest, RejectsTruncatedCompressedFiles) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "{\"text\": \"" + std::to_string(i % 256) + "\"}\n";
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    for (std::size_t size = 4; size < packed.size(); ++size) {
      write(folder_ / "in.jsonl", packed.substr(0, size));
      EXPECT_THROW(
          {
            corpus::LineReader reader(folder_ / "in.jsonl", 100);
            corpus::LineChunk chunk;
            while (reader.next(chunk)) continue;
          },
          DataError)
          << size;
    }
  }
}

}  // namespace
}  // namespace colonnade::preprocess
