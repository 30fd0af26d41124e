// Data that changed between sessions: one sentence per dataset, with all known changes and their effect.
#include "colonnade/audit/changed_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace colonnade::audit {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr std::int64_t kDay = 86'400'000'000'000;

/// A dataset /data/a in all splits, and /data/b in validation only.
LedgerLine line() {
  const auto set = [](const char* name) { return nlohmann::json{{"name", name}}; };
  return {.began = "2026-11-21 13:04:08",
          .data = {{"train", {{"sets", {set("/data/a")}}}},
                   {"valid", {{"sets", {set("/data/a"), set("/data/b")}}}}},
          .files = {{"/data/a.bin", 4000, 5 * kDay, "4567cdef"},
                    {"/data/a.idx", 120, 5 * kDay, "0123abcd"},
                    {"/data/b.bin", 10, 5 * kDay, "5678"},
                    {"/data/b.idx", 11, 5 * kDay, "6789"}}};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(ChangedData, UnchangedDataIsNotReported) {
  LedgerLine now = line();
  EXPECT_THAT(changed_data(now, line(), {}), IsEmpty());
  now.files[0].changed_ns += kDay;  // written again, with the same bytes
  EXPECT_THAT(changed_data(now, line(), {}), IsEmpty());
  now.files[0].xxh3_128 = "another";
  EXPECT_THAT(changed_data(now, {}, {}), IsEmpty()) << "no session before";
}

TEST(ChangedData, TokensOfAllSplitsAndBothFilesAreOneSentence) {
  LedgerLine now = line();
  now.files[0] = {"/data/a.bin", 3600, 6 * kDay, "1"};
  now.files[1] = {"/data/a.idx", 110, 6 * kDay, "2"};
  const auto told =
      changed_data(now, line(), {{.name = "/data/a", .parts = {{"train", 1800, 1600}, {"valid", 200, 180}}}});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(
      told[0],
      AllOf(StartsWith("/data/a: changed since the checkpoint: train tokens 1800 -> 1600; valid tokens "
                       "200 -> 180; since the session of 2026-11-21 13:04:08, which made the "
                       "checkpoint: a.bin 4000 bytes of 1970-01-0"),
            HasSubstr(" -> 3600 bytes of 1970-01-0"), HasSubstr("; a.idx 120 bytes of"),
            HasSubstr(": sample indices continue in the new data, validation losses are not comparable; "),
            EndsWith("`colonnade data audit` shows which sessions read the old data")));
  EXPECT_EQ(count(told[0], "sample indices continue"), 1U);
}

TEST(ChangedData, TokenChangesAreReportedWithoutFileChanges) {
  EXPECT_THAT(
      changed_data(line(), {}, {{.name = "/data/a", .parts = {{"train", 1800, 1600}}}}),
      ElementsAre(
          "/data/a: changed since the checkpoint: train tokens 1800 -> 1600: sample indices continue in "
          "the new data, validation losses are not comparable"));
}

TEST(ChangedData, EvaluationDataDoesNotAffectTrainingSamples) {
  LedgerLine now = line();
  now.files[2].xxh3_128 = "9999888877";
  EXPECT_THAT(changed_data(now, line(), {}),
              ElementsAre(AllOf(StartsWith("/data/b: changed since"),
                                HasSubstr("b.bin other contents, checksum 5678... -> 99998888..."),
                                HasSubstr(": validation losses are not comparable"),
                                Not(HasSubstr("sample indices")))));
  now.data = {{"test", {{"sets", {{{"name", "/data/b"}}}}}}};
  EXPECT_THAT(
      changed_data(now, line(), {}),
      ElementsAre(AllOf(HasSubstr(": test losses are not comparable; "), Not(HasSubstr("validation")))));
}

TEST(ChangedData, SpellingsOfOnePathAreOneDataset) {
  const std::string b = std::filesystem::absolute("b").string();
  const auto session = [&](const char* sum) {
    return LedgerLine{.data = {{"train", {{"sets", {{{"name", "b"}}, {{"name", b}}}}}},
                               {"valid", {{"sets", {{{"name", "./x/../b"}}}}}}},
                      .files = {{b + ".bin", 10, kDay, sum, {b}}}};
  };
  const auto told = changed_data(session("2"), session("1"),
                                 {{.name = "b", .parts = {{"train", 9, 8}}},
                                  {.name = b, .parts = {{"train", 9, 8}}},
                                  {.name = "./x/../b", .parts = {{"valid", 7, 6}}}});
  EXPECT_THAT(
      told,
      ElementsAre(AllOf(
          StartsWith("b: changed since the checkpoint: train tokens 9 -> 8; valid tokens 7 -> 6; "),
          HasSubstr(": sample indices continue in the new data, validation losses are not comparable;"))));
}

TEST(ChangedData, FolderWithThePrefixsNameIsAnotherDataset) {
  for (const bool known : {true, false}) {  // old sessions do not record the datasets of a file
    const auto session = [&](const char* sum) {
      LedgerLine line{.data = {{"train", {{"sets", {{{"name", "/b"}}, {{"name", "/b/p"}}}}}}},
                      .files = {{"/b.bin", 10, kDay, "1"}, {"/b/p.bin", 10, kDay, sum}}};
      if (known) line.files[0].sets = {"/b"}, line.files[1].sets = {"/b/p"};
      return line;
    };
    EXPECT_THAT(changed_data(session("3"), session("2"), {}), ElementsAre(StartsWith("/b/p: "))) << known;
  }
}

TEST(ChangedData, FolderOfAChatFileIsAnotherDataset) {
  LedgerLine file{.data = {{"train", {{"sets", {{{"name", "/c/1.jsonl"}}}}}}},
                  .files = {{"/c/1.jsonl", 7, kDay, "1", {"/c/1.jsonl"}}}};
  LedgerLine folder{.data = {{"train", {{"sets", {{{"name", "/c"}}}}}}},
                    .files = {{"/c/1.jsonl", 7, kDay, "1", {"/c"}}, {"/c/2.jsonl", 7, kDay, "2", {"/c"}}}};
  EXPECT_THAT(changed_data(folder, file, {}), IsEmpty());
}

TEST(ChangedData, EveryDatasetHasItsOwnSentence) {
  LedgerLine now = line();
  now.files[1].xxh3_128 = now.files[3].xxh3_128 = "another";
  EXPECT_THAT(changed_data(now, line(), {}), ElementsAre(StartsWith("/data/a: "), StartsWith("/data/b: ")));
}

TEST(ChangedData, NewAndRemovedChatFilesAreReported) {
  const auto chats = [](int first, int last) {
    LedgerLine line{.settings = {{"sft", "true"}}, .data = {{"train", {{"sets", {{{"name", "/chats/"}}}}}}}};
    for (int i = first; i <= last; ++i)
      line.files.push_back({"/chats/" + std::to_string(i) + ".jsonl", 7, kDay, std::to_string(i)});
    return line;
  };
  EXPECT_THAT(changed_data(chats(1, 3), chats(2, 4), {}),
              ElementsAre(AllOf(HasSubstr(": 1.jsonl is new, 7 bytes of "),
                                HasSubstr("; 4.jsonl was removed, 7 bytes of"),
                                HasSubstr("sample indices continue"))));
  EXPECT_THAT(changed_data(chats(1, 9), chats(1, 1), {}),
              ElementsAre(AllOf(HasSubstr("5.jsonl is new"), Not(HasSubstr("6.jsonl")),
                                HasSubstr("; 4 more files: "))));
}

TEST(ChangedData, NewDatasetIsNotAChange) {
  LedgerLine before = line();
  before.files.resize(2);
  EXPECT_THAT(changed_data(line(), before, {}), IsEmpty());
}

}  // namespace
}  // namespace colonnade::audit
