// Layer splits against Megatron's formulas and layouts, and every error.
#include "colonnade/layout/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/layout/layout_string.h"

namespace colonnade::layout {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::int64_t layers = 8;
  int pp = 2;
  int chunks = 0, per_chunk = 0, first = 0, last = 0;
  bool embedding = false, loss = false;
  std::string layout;
  std::string schedule = "auto";
};

config::Parallel parallel_of(const Case& c) {
  config::Parallel p;
  p.pipeline_model_parallel_size = c.pp;
  p.num_virtual_stages_per_pipeline_rank = c.chunks;
  p.num_layers_per_virtual_pipeline_stage = c.per_chunk;
  p.decoder_first_pipeline_num_layers = c.first;
  p.decoder_last_pipeline_num_layers = c.last;
  p.account_for_embedding_in_pipeline_split = c.embedding;
  p.account_for_loss_in_pipeline_split = c.loss;
  p.pipeline_model_parallel_layout = c.layout;
  p.pipeline_schedule = c.schedule;
  return p;
}

config::Model model_of(const Case& c) {
  config::Model model;
  model.num_layers = c.layers;
  return model;
}

std::vector<StageBlocks> split(const Case& c) { return split_stages(model_of(c), parallel_of(c)); }

/// Layers of each virtual stage: "E3 3 2L".
std::string show(const std::vector<StageBlocks>& stages) {
  std::string out;
  std::int64_t next = 0;
  for (const StageBlocks& s : stages) {
    const IndexRange layers = s.layers();
    EXPECT_EQ(layers.size() > 0 ? layers.first : next, next);
    next += layers.size();
    if (!out.empty()) out += ' ';
    out += (s.has(BlockKind::kEmbedding) ? "E" : "") + std::to_string(layers.size()) +
           (s.has(BlockKind::kHead) ? "L" : "");
  }
  return out;
}

std::string message(const Case& c) {
  try {
    split(c);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Stages, EvenSplits) {
  EXPECT_EQ(show(split({.layers = 8, .pp = 1})), "E8L");
  EXPECT_EQ(show(split({.layers = 8, .pp = 4})), "E2 2 2 2L");
  EXPECT_EQ(show(split({.layers = 8, .pp = 2, .chunks = 2})), "E2 2 2 2L");
  EXPECT_EQ(show(split({.layers = 12, .pp = 2, .per_chunk = 2})), "E2 2 2 2 2 2L");
}

TEST(Stages, EmbeddingAndLossMayCountAsLayers) {
  EXPECT_EQ(show(split({.layers = 6, .pp = 4, .embedding = true, .loss = true})), "E1 2 2 1L");
  EXPECT_EQ(show(split({.layers = 7, .pp = 2, .chunks = 2, .embedding = true})), "E1 2 2 2L");
  EXPECT_EQ(show(split({.layers = 7, .pp = 2, .per_chunk = 2, .loss = true})), "E2 2 2 1L");
  EXPECT_EQ(show(split({.layers = 2, .pp = 4, .embedding = true, .loss = true})), "E0 1 1 0L");
}

TEST(Stages, UnevenFirstAndLastRanks) {
  EXPECT_EQ(show(split({.layers = 8, .pp = 4, .first = 1, .last = 3})), "E1 2 2 3L");
  EXPECT_EQ(show(split({.layers = 7, .pp = 4, .first = 1})), "E1 2 2 2L");
  EXPECT_EQ(show(split({.layers = 8, .pp = 2, .last = 3})), "E5 3L");
  // Megatron's offset on rank 1, chunk 1: (2 + 8 + 4)/2 + 2/2 = 8.
  EXPECT_EQ(show(split({.layers = 14, .pp = 4, .chunks = 2, .first = 2, .last = 4})), "E1 2 2 2 1 2 2 2L");
  EXPECT_EQ(split({.layers = 14, .pp = 4, .chunks = 2, .first = 2, .last = 4})[5].layers().first, 8);
}

TEST(Stages, MegatronLayouts) {
  EXPECT_EQ(show(split({.layers = 9, .pp = 4, .layout = "Ettt|tt|tt|ttL"})), "E3 2 2 2L");
  EXPECT_EQ(show(split({.layers = 6, .pp = 2, .layout = "E|t*3|t*3|L"})), "E0 3 3 0L");
  EXPECT_EQ(show(split({.layers = 7, .pp = 4, .layout = "E,t*3,|(tt|)*2,L"})), "E3 2 2 0L");
  EXPECT_EQ(show(split({.layers = 2, .pp = 2, .layout = "E|t|t|L"})), "E0 1 1 0L");
  EXPECT_EQ(show(split({.layers = 2, .pp = 4, .layout = "Et||t|L"})), "E1 0 1 0L");
  EXPECT_EQ(expand_layout("Et*2|(t*2|)*2L"), "Ett|tt|tt|L");
  EXPECT_EQ(expand_layout("Et*12|L"), "Etttttttttttt|L");
  EXPECT_EQ(expand_layout("[['embedding', \"decoder\"], [decoder, loss]]"), "Et|tL");
  EXPECT_EQ(expand_layout("[[embedding]+[decoder]*2]+[[decoder]*2]*2+[[],[mtp,loss],]"), "Ett|tt|tt||mL");
}

TEST(Stages, EvenLayoutsHaveAShortForm) {
  config::Model model;
  model.num_layers = 57;
  EXPECT_EQ(even_layout(model, 15), "E(t*4|)*12(t*3|)*2t*3L");
  EXPECT_EQ(even_layout(model, 15, true), "Et*3|(t*4|)*13t*2L") << "59 in 15";
  model.num_layers = 61;
  model.mtp_num_layers = 1;
  EXPECT_EQ(even_layout(model, 16), "E(t*4|)*13(t*3|)*2t*3mL");
  EXPECT_EQ(even_layout(model, 16, true), "Et*3|(t*4|)*14t*2mL") << "64 in 16";
  EXPECT_EQ(even_layout(model, 32, true), "Et|(t*2|)*30mL") << "DeepSeek-V3's";
  EXPECT_EQ(even_layout(model, 61, true), even_layout(model, 61)) << "no space for three layers in a stage";
  for (std::int64_t stages = 2; stages < 61; ++stages)
    for (const bool ends : {false, true}) {
      std::int64_t layers = 0;
      for (const StageBlocks& s :
           parse_layout(even_layout(model, stages, ends), model, static_cast<int>(stages)))
        layers += s.layers().size();
      EXPECT_EQ(layers, 61);
    }
}

TEST(Stages, RejectsInvalidLayoutsWithTheReason) {
  const auto layout = [](const std::string& text) { return message({.layers = 2, .pp = 2, .layout = text}); };
  for (const char* list : {"[embedding,loss]", "[[embedding,[decoder]]]", "[[embedding]", "[[embeding,loss]]",
                           "[]x", "[[decoder]*99999999]", "[[decoder]*-1]", "[[embedding]+decoder]"})
    EXPECT_THAT(layout(list), HasSubstr("must have one list per stage of the names"));
  EXPECT_THAT(layout("[[embedding,decoder,loss]]"), HasSubstr("must have t once per layer, not 1 times for "
                                                              "--num-layers 2"));
  EXPECT_THAT(layout("tt|L"), HasSubstr("must have E once and first, not 0 times"));
  EXPECT_THAT(layout("tE|tL"), HasSubstr("must have E once and first, before all"));
  EXPECT_THAT(layout("Et|tLL"), HasSubstr("must have L once and last, not 2 times"));
  EXPECT_THAT(layout("Et|Lt"), HasSubstr("must have L once and last, after all"));
  EXPECT_THAT(layout("Ettt|L"), HasSubstr("not 3 times for --num-layers 2"));
  EXPECT_THAT(layout("Et|t|L"),
              HasSubstr("must have a number of stages that is a multiple of the pipeline size 2, not 3"));
  EXPECT_THAT(layout("Et|tmL"),
              HasSubstr("must have m once per MTP layer, not 1 times for --mtp-num-layers 0"));
  EXPECT_THAT(layout("Et|txL"), HasSubstr("not 'x'"));
  EXPECT_THAT(layout("E(t|*2L"), HasSubstr("must close every bracket"));
  EXPECT_THAT(layout("Et|)t*2L"), HasSubstr("must not close a bracket that was not opened"));
  EXPECT_THAT(layout("E((t)*2|)*2L"), HasSubstr("must not nest groups"));
  EXPECT_THAT(layout("E(tt|)L"), HasSubstr("must have a repeat count after a group"));
  EXPECT_THAT(layout("Et*|tL"), HasSubstr("must have a repeat count after *"));
  EXPECT_THAT(layout("*2Et|tL"), HasSubstr("must have a letter or a group before *"));
  EXPECT_THAT(layout("Et*99999999999999999999|L"), HasSubstr("must have a repeat count after *"));
  EXPECT_THAT(layout("E(t*1000000)*1000000|L"), HasSubstr("at most 1000000 letters"));
  EXPECT_THAT(layout("E(tttttttttt)*1000000|L"), HasSubstr("at most 1000000 letters"));
  EXPECT_THAT(layout("|EttL"),
              HasSubstr("must have E in the first stage; got '|EttL'; remove the | before it"));
  EXPECT_THAT(layout("EttL|"), HasSubstr("must have L in the last stage; got 'EttL|'; remove the | after "
                                         "it"));
  EXPECT_THAT(layout("(|)*2EttL||"), HasSubstr("must have E in the first stage"));
  EXPECT_THAT(layout("|"), HasSubstr("must have E once"));
  EXPECT_THAT(layout(","), HasSubstr("must have E once"));
}

/// Final norm (n), head (L) and number of input states of each stage.
std::string ends(const std::string& layout, std::int64_t mtp_layers) {
  std::string out;
  std::int64_t states = 1;
  config::Model model;
  model.num_layers = 2;
  model.mtp_num_layers = mtp_layers;
  for (const StageBlocks& s : parse_layout(layout, model, 1)) {
    EXPECT_EQ(s.states_in, states) << layout;
    states = s.states_out;
    out += fmt::format("{}{}{}", s.states_in, s.has(BlockKind::kFinalNorm) ? "n" : "",
                       s.has(BlockKind::kHead) ? "L " : " ");
  }
  return out;
}

TEST(Stages, MtpLayersMayPrecedeTheStageOfTheHead) {
  EXPECT_EQ(ends("Et|tL", 0), "1 1nL ");
  EXPECT_EQ(ends("Et|tmmL", 2), "1 1nL ");
  EXPECT_EQ(ends("Ett|mm|L", 2), "1 1n 3L ");
  EXPECT_EQ(ends("Ettm||L", 1), "1n 2 2L ");
  EXPECT_EQ(ends("Et*1|(t|)*1,m|L", 1), "1 1 1n 2L ");
  const auto error_of = [](const char* layout) {
    try {
      ends(layout, 2);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of("Ettm|mL"), HasSubstr("must have all m in one stage; got 'Ettm|mL'; move them"));
  EXPECT_THAT(error_of("Et|mtmL"), HasSubstr("must have m after all layers t"));
  EXPECT_THAT(error_of("Emm|L"), HasSubstr("must have t once per layer, not 0 times"));
  EXPECT_THAT(error_of("Etmm|tL"),
              HasSubstr("must have m after all layers t; got 'Etmm|tL'; move m to the end"));
}

TEST(Stages, RejectsConflictingSettingsWithTheReason) {
  EXPECT_THAT(message({.layers = 7, .pp = 2}), HasSubstr("got 2 * 1 for 7"));
  EXPECT_THAT(message({.layers = 0, .pp = 2}), HasSubstr("must be at least 1"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .chunks = 3}), HasSubstr("got 2 * 3 for 8"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .per_chunk = 3}), HasSubstr("got 3 * 2 for 8"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .chunks = 2, .per_chunk = 2}),
              HasSubstr("is not supported with "
                        "--num-layers-per-virtual-pipeline-stage"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .per_chunk = 2, .first = 2}), HasSubstr("requires an even "
                                                                                     "split"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .first = 2, .embedding = true}),
              HasSubstr("must not count embedding and loss as layers"));
  EXPECT_THAT(message({.layers = 8, .pp = 1, .first = 2}), HasSubstr("requires at least two pipeline ranks"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .first = 2, .last = 2}), HasSubstr("must have layers per rank "
                                                                                "that add up to all layers"));
  EXPECT_THAT(message({.layers = 8, .pp = 3, .first = 9}), HasSubstr("must have layers per rank that add up "
                                                                     "to all layers"));
  EXPECT_THAT(message({.layers = 8, .pp = 3, .first = 1}),
              HasSubstr("must divide the other 7 layers evenly over the other 2 ranks"));
  EXPECT_THAT(message({.layers = 8, .pp = 2, .chunks = 2, .first = 3}),
              HasSubstr("must have a multiple of the virtual stages"));
  for (const Case& c : {Case{.chunks = 2}, Case{.per_chunk = 2}, Case{.first = 2}, Case{.last = 2},
                        Case{.embedding = true}, Case{.loss = true}}) {
    Case both = c;
    both.layout = "Etttt|ttttL";
    EXPECT_THAT(message(both), HasSubstr("defines the whole split"));
  }
}

/// Layers, embedding and head of each rank: "E0..1+1..2L" is embedding and layer 0, then layer 1 and head as
/// second chunk; a stage without layers has no numbers.
std::vector<std::string> stages_by_rank(const Case& c) {
  std::vector<std::string> out;
  for (int rank = 0; rank < c.pp; ++rank) {
    std::string& text = out.emplace_back();
    for (const StageBlocks& s : stages_of_rank(model_of(c), parallel_of(c), rank)) {
      const auto [first, last] = s.layers();
      text += fmt::format("{}{}{}{}", text.empty() ? "" : "+", s.has(BlockKind::kEmbedding) ? "E" : "",
                          last > first ? fmt::format("{}..{}", first, last) : "",
                          s.has(BlockKind::kHead) ? "L" : "");
    }
  }
  return out;
}

TEST(Stages, RanksHoldTheStagesOfThePlacement) {
  using ::testing::ElementsAre;
  EXPECT_THAT(stages_by_rank({.layers = 8, .pp = 2, .chunks = 2}), ElementsAre("E0..2+4..6", "2..4+6..8L"));
  for (const char* name : {"zb-v", "dualpipe-v"}) {
    EXPECT_EQ(show(split({.layers = 8, .pp = 2, .schedule = name})), "E2 2 2 2L");
    EXPECT_THAT(stages_by_rank({.layers = 8, .pp = 2, .schedule = name}),
                ElementsAre("E0..2+6..8L", "2..4+4..6"));
    EXPECT_THAT(stages_by_rank({.layers = 2, .pp = 2, .layout = "E|t|t|L", .schedule = name}),
                ElementsAre("E+L", "0..1+1..2"));
    // In V placement the first rank also holds the last stage.
    EXPECT_EQ(show(split({.layers = 14, .pp = 4, .first = 2, .schedule = name})), "E1 2 2 2 2 2 2 1L");
    EXPECT_THAT(message({.layers = 6, .pp = 2, .schedule = name}), HasSubstr("must divide the layers"));
  }
  EXPECT_EQ(show(split({.layers = 8, .pp = 2, .schedule = "zb-h1"})), "E4 4L");
}

}  // namespace
}  // namespace colonnade::layout
