// verify reports every damage; inspect and diff report contents.
#include "colonnade/checkpoint/verify.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/checkpoint/manifest.h"
#include "support/vectors.h"

namespace colonnade::checkpoint {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::Contains;
using testing::HasSubstr;

std::vector<std::string> kinds(const fs::path& folder) {
  std::vector<std::string> kinds;
  for (const Damage& damage : damages(folder, Check::kChecksums))
    kinds.push_back(damage.kind + " " + damage.where);
  return kinds;
}

struct Saved {
  TempFolder run;
  fs::path folder;
  explicit Saved(const Layout& layout = {}) : folder(save_toy(run, 5, layout).folder) {}
};

TEST(Verify, IntactCheckpointHasNoDamage) {
  for (const Layout& layout : layouts()) {
    const Saved saved(layout);
    EXPECT_TRUE(damages(saved.folder, Check::kChecksums).empty()) << layout.name;
    EXPECT_TRUE(verify(saved.run).at("ok"));
  }
}

TEST(Verify, EveryTruncationIsReported) {
  const Saved saved(layouts()[1]);
  for (const auto& entry : fs::directory_iterator(saved.folder)) {
    const std::string good = read_file(entry.path());
    const std::string name = entry.path().filename().string();
    const std::string kind = name == kManifestName ? "manifest " : "size ";
    for (std::size_t part = 0; part < 8; ++part) {
      write_raw(entry.path(), good.substr(0, good.size() * part / 8));
      EXPECT_THAT(kinds(saved.folder), Contains(kind + name));
    }
    write_raw(entry.path(), good + "x");
    EXPECT_THAT(kinds(saved.folder), Contains(kind + name));
    fs::remove(entry.path());
    EXPECT_THAT(kinds(saved.folder), Contains((name == kManifestName ? "manifest " : "missing ") + name));
    write_raw(entry.path(), good);
  }
  EXPECT_TRUE(kinds(saved.folder).empty());
}

TEST(Verify, EveryFlippedBitIsReported) {
  const Saved saved(layouts()[1]);
  for (const auto& entry : fs::directory_iterator(saved.folder)) {
    const std::string name = entry.path().filename().string();
    if (name == kManifestName) continue;
    const std::string good = read_file(entry.path());
    for (std::size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      write_raw(entry.path(), bad);
      const auto found = kinds(saved.folder);
      ASSERT_FALSE(found.empty()) << name << " byte " << at;
      EXPECT_THAT(found[0], HasSubstr(name));
    }
    write_raw(entry.path(), good);
  }
}

TEST(Verify, EveryFlippedBitOfTheManifestIsReported) {
  const Saved saved;
  const std::string good = read_file(saved.folder / kManifestName);
  EXPECT_EQ(parse_manifest(good, "m").step, 5);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    EXPECT_THROW(parse_manifest(bad, "m"), DataError) << at;
  }
}

/// Damage kinds of a changed manifest with a valid checksum, as from a malicious or buggy writer.
std::vector<std::string> kinds_with(const Saved& saved, const std::function<void(Manifest&)>& change) {
  const std::string good = read_file(saved.folder / kManifestName);
  Manifest manifest = read_manifest(saved.folder);
  change(manifest);
  write_raw(saved.folder / kManifestName, to_text(manifest));
  std::vector<std::string> texts;
  for (const Damage& damage : damages(saved.folder, Check::kChecksums))
    texts.push_back(damage.kind + ": " + damage.text);
  write_raw(saved.folder / kManifestName, good);
  return texts;
}

TEST(Verify, ManifestThatDoesNotMatchTheFilesIsReported) {
  const Saved saved;
  const std::string name = moment_of(toys()[0]);
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.tensors.erase(name); }),
              Contains(HasSubstr("tensor: ")));  // the file holds an unknown tensor
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.tensors[name].dtype = at::kInt; }),
              Contains(HasSubstr("must be I32 of [10, 6]; got F32 of [10, 6]")));
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.tensors[name].chunks[0].key = "other"; }),
              Contains(HasSubstr("'other' must exist")));
  EXPECT_THAT(kinds_with(saved,
                         [&](Manifest& m) {
                           m.tensors[name].shape = {11, 6};
                         }),
              Contains(HasSubstr("elements [10:11, 0:6] have no owner")));
  EXPECT_THAT(
      kinds_with(saved, [&](Manifest& m) { m.tensors[name].chunks.push_back(m.tensors[name].chunks[0]); }),
      Contains(HasSubstr("two owners")));
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.tensors[name].chunks[0].file = "../../secret"; }),
              Contains(HasSubstr("unlisted file")));
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.files["../x"] = {}; }),
              Contains(HasSubstr("the file name '../x'")));
  EXPECT_THAT(kinds_with(saved, [&](Manifest& m) { m.step = 6; }), Contains(HasSubstr("must hold step 5")));
}

TEST(Verify, NotesReportHarmlessFindings) {
  const Saved saved;
  const fs::path checkpoints = saved.folder.parent_path();
  fs::create_directory(checkpoints / "step_00000009.staging");
  write_raw(checkpoints / "latest", "rubbish");
  write_raw(saved.folder / "tokenizer.json", "{}");
  const auto result = verify(saved.run);
  EXPECT_TRUE(result["ok"]);
  EXPECT_EQ(result["notes"].size(), 2);
  const std::string text = verify_text(result);
  for (const char* part : {"intact", "step_00000009.staging", "latest names no checkpoint", "tokenizer.json"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(message_of([&] { verify(saved.run.path() / "nothing"); }), HasSubstr("got neither"));
}

TEST(Inspect, ListsTensorsSizesAndState) {
  const Saved saved(layouts()[3]);
  const auto result = inspect(CheckpointReader::open(saved.run));
  EXPECT_EQ(result["step"], 5);
  EXPECT_EQ(result["parameters"], 60 + 96 + 72 + 14 + 1);
  EXPECT_EQ(result["tensors"].size(), 10);
  EXPECT_EQ(result["state"]["seed"], 1234);
  const std::string text = inspect_text(result);
  for (const char* part :
       {"model.layers.0.proj.weight", "BF16", "[8,12]", "optimizer-00003.safetensors", "\"lr\": 0.1"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(
      inspect(CheckpointReader::open(fs::path(colonnade::test::vectors()) / "hf/gpt2"))["tensors"].size(),
      28);
}

TEST(Diff, FindsEqualAndDifferentTensors) {
  const Saved one(layouts()[0]);
  const Saved grid(layouts()[3]);
  EXPECT_TRUE(diff(CheckpointReader::open(one.folder), CheckpointReader::open(grid.folder)).at("equal"));
  const TempFolder a;
  const TempFolder b;
  for (const TempFolder* folder : {&a, &b}) write_raw(folder->path() / "config.json", "{}");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor x = at::arange(0, 6, at::kFloat).reshape({2, 3});
  at::Tensor y = x.clone();
  y[1][0] += 0.5;
  y[1][2] -= 2.0;
  x[0][0] = y[0][0] = nan;
  write_safetensors(a.path() / "model.safetensors",
                    {{"w", x}, {"s", at::ones({2})}, {"t", at::ones({2})}, {"a", x}});
  write_safetensors(b.path() / "model.safetensors",
                    {{"w", y}, {"s", at::ones({3})}, {"t", at::ones({2}, at::kHalf)}, {"b", x}});
  const auto result = diff(CheckpointReader::open(a.path()), CheckpointReader::open(b.path()));
  EXPECT_FALSE(result["equal"]);
  EXPECT_EQ(result["only_a"], (nlohmann::json{"a"}));
  EXPECT_EQ(result["only_b"], (nlohmann::json{"b"}));
  ASSERT_EQ(result["tensors"].size(), 3);
  EXPECT_EQ(result["tensors"][0]["shapes"], nlohmann::json::parse("[[2],[3]]"));
  EXPECT_EQ(result["tensors"][1]["dtypes"], nlohmann::json::parse(R"(["F32","F16"])"));
  EXPECT_EQ(result["tensors"][2]["max_abs_difference"], 2.0);
  EXPECT_EQ(result["tensors"][2]["differing"], 2);
  EXPECT_EQ(result["tensors"][2]["first"], nlohmann::json::parse("[1,0]"));
  EXPECT_THAT(diff_text(result), HasSubstr("w  2 elements differ by up to 2.0, first at [1,0]"));
}

}  // namespace
}  // namespace colonnade::checkpoint
