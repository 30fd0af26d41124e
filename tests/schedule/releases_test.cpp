// Sent tensors are released during the step, never too early.
#include "colonnade/schedule/releases.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace colonnade::schedule {
namespace {

/// Maximum number of unreleased sends on `rank`.
std::size_t max_unreleased(const Schedule& schedule, int rank) {
  const auto release = releases(schedule, rank);
  const auto& program = schedule.programs[static_cast<std::size_t>(rank)];
  std::size_t unreleased = 0;
  std::size_t peak = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind == ActionKind::kSendActivation || program[i].kind == ActionKind::kSendGradient)
      ++unreleased;
    peak = std::max(peak, unreleased);
    for (const std::size_t sent : release[i]) {
      EXPECT_LT(sent, i);
      --unreleased;
    }
  }
  return peak;
}

TEST(Releases, AreIndependentOfTheNumberOfMicrobatches) {
  for (const int ranks : {2, 4, 8})
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(max_unreleased(one_f_one_b(ranks, 64), rank), static_cast<std::size_t>(2 * ranks + 2))
          << rank << " of " << ranks;
      EXPECT_LE(max_unreleased(interleaved(ranks, 2, 64, ranks), rank),
                static_cast<std::size_t>(8 * ranks + 4))
          << rank << " of " << ranks;
      EXPECT_LE(max_unreleased(zb_h1(ranks, 64), rank), static_cast<std::size_t>(2 * ranks + 2))
          << rank << " of " << ranks;
      for (const auto& vee : {zb_v(ranks, 64), dualpipe_v(ranks, 64)})
        EXPECT_LE(max_unreleased(vee, rank), static_cast<std::size_t>(8 * ranks + 4))
            << vee.kind << ' ' << rank << " of " << ranks;
    }
}

TEST(Releases, MatchAHandComputedExample) {
  // Rank 0: F0 send, F1 send, recv gradient 0, B0, recv gradient 1, B1. The gradient of a micro-batch
  // acknowledges its activation.
  const auto schedule = one_f_one_b(2, 2);
  const auto release = releases(schedule, 0);
  const auto& program = schedule.programs[0];
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind != ActionKind::kRecvGradient) continue;
    const auto sent = std::find(program.begin(), program.end(),
                                Action{ActionKind::kSendActivation, 0, program[i].microbatch});
    ASSERT_FALSE(release[i].empty());
    EXPECT_EQ(release[i][0], static_cast<std::size_t>(sent - program.begin()));
  }
}

TEST(EvaluationSendWindow, IsSmall) {
  for (const int ranks : {2, 4, 8, 16}) {
    for (const Schedule& s : {one_f_one_b(ranks, 64), gpipe(ranks, 64), zb_h1(ranks, 64),
                              interleaved(ranks, 2, 64, ranks), interleaved(ranks, 4, 64, ranks)})
      EXPECT_EQ(evaluation_send_window(s), 2U) << s.kind << " on " << ranks;
    for (const Schedule& s : {zb_v(ranks, 64), dualpipe_v(ranks, 64)})
      EXPECT_LE(evaluation_send_window(s), std::max(2U, static_cast<unsigned>(ranks) / 2)) << s.kind;
  }
  // With more micro-batches per group than ranks, the first chunks run a whole group before the second ones
  // start.
  EXPECT_EQ(evaluation_send_window(interleaved(2, 2, 64, 32)), 16U);
}

/// Chunk with messages of one byte.
constexpr ChunkMessageSizes kBlocks{1, 1, false};

TEST(HeldMessages, MatchAHandComputedExample) {
  const auto schedule = one_f_one_b(2, 2);
  // F0 send F1 send recv B0 recv B1: an output until its gradient has arrived.
  EXPECT_EQ(resident_message_bytes(checked(schedule), 0, {kBlocks}),
            (std::vector<std::int64_t>{0, 1, 1, 2, 2, 1, 1, 0, 0}));
  // recv F0 B0 send recv F1 B1 send: the second activation was sent before the first gradient arrived.
  EXPECT_EQ(resident_message_bytes(checked(schedule), 1, {kBlocks}),
            (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 1, 2, 2}));
}

TEST(HeldMessages, OutputsMayBeLongerThanInputs) {
  const auto s = checked(one_f_one_b(3, 1));
  const std::vector<ChunkMessageSizes> longer{{1, 10, false}};
  // recv F send recv B send: the output until its gradient has arrived, then the input gradient.
  EXPECT_EQ(resident_message_bytes(s, 1, longer), (std::vector<std::int64_t>{0, 0, 10, 10, 0, 1, 1}));
}

TEST(HeldMessages, OfAnEmptyChunkAreItsGradients) {
  const auto schedule = one_f_one_b(3, 4);
  const Program& program = schedule.programs[1];
  const auto held = resident_message_bytes(checked(schedule), 1, {{1, 1, /*empty=*/true}}),
             with_blocks = resident_message_bytes(checked(schedule), 1, {kBlocks});
  const auto release = releases(schedule, 1);
  int outputs = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    EXPECT_EQ(with_blocks[i] - held[i], outputs) << i;
    if (program[i].kind == ActionKind::kForward) ++outputs;
    for (const std::size_t sent : release[i])
      outputs -= program[sent].kind == ActionKind::kSendActivation ? 1 : 0;
  }
}

// Adjacent chunks of a V on one rank share tensors in memory: at the end only sent tensors remain.
TEST(HeldMessages, OfAdjacentEmptyChunksAreTheirGradients) {
  const auto s = checked(zb_v(2, 6));
  const std::vector<ChunkMessageSizes> empty(2, {1, 1, /*empty=*/true});
  const auto& released = s.messages[1].released;
  const Program& program = s.schedule.programs[1];
  std::ptrdiff_t open = std::ranges::count(program, ActionKind::kSendGradient, &Action::kind);
  for (const auto& sends : released)
    open -= std::ranges::count_if(
        sends, [&](std::size_t i) { return program[i].kind == ActionKind::kSendGradient; });
  EXPECT_EQ(resident_message_bytes(s, 1, empty).back(), open) << "no leak per micro-batch";
}

TEST(HeldMessages, EndWithUnreleasedSends) {
  for (const int ranks : {1, 2, 4})
    for (const Schedule& s : {one_f_one_b(ranks, 8), interleaved(ranks, 2, 8, ranks), zb_h1(ranks, 8),
                              zb_v(ranks, 8), dualpipe_v(ranks, 8), gpipe(ranks, 8)})
      for (int rank = 0; rank < ranks; ++rank) {
        const Program& program = s.programs[static_cast<std::size_t>(rank)];
        auto open = std::ranges::count_if(program, [](const Action& a) { return is_send(a.kind); });
        for (const auto& sends : releases(s, rank)) open -= std::ssize(sends);
        const auto held = resident_message_bytes(
            checked(s), rank, std::vector<ChunkMessageSizes>(static_cast<std::size_t>(s.chunks), kBlocks));
        EXPECT_EQ(held.back(), open) << s.kind << ' ' << rank << " of " << ranks;
        EXPECT_GE(std::ranges::min(held), 0) << s.kind << ' ' << rank << " of " << ranks;
      }
}

// The peer runs backward from the last micro-batch: a gradient after one that cannot be posted yet is not
// posted.
TEST(OverlappedReceives, KeepTheSendOrderOfGradients) {
  using enum ActionKind;
  Schedule schedule = gpipe(2, 2);
  schedule.programs = {{{kForward, 0, 0},
                        {kSendActivation, 0, 0},
                        {kForward, 0, 1},
                        {kSendActivation, 0, 1},
                        {kRecvGradient, 0, 1},
                        {kRecvGradient, 0, 0},
                        {kBackward, 0, 1},
                        {kBackward, 0, 0}},
                       {{kRecvActivation, 0, 0},
                        {kForward, 0, 0},
                        {kRecvActivation, 0, 1},
                        {kForward, 0, 1},
                        {kBackward, 0, 1},
                        {kSendGradient, 0, 1},
                        {kBackward, 0, 0},
                        {kSendGradient, 0, 0}}};
  ASSERT_EQ(check(schedule).faults, std::vector<std::string>{});
  using Indices = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(overlapped_receives(schedule.programs[0]), Indices(8));
  EXPECT_EQ(overlapped_receives(schedule.programs[1]), (Indices{{}, {2}, {}, {}, {}, {}, {}, {}}));
}

// Every receive overlaps with the compute action before it, except receives before the first one and
// gradients of the micro-batch whose forward it is.
TEST(OverlappedReceives, OverlapWithThePreviousComputeAction) {
  for (const Schedule& schedule : {gpipe(4, 6), one_f_one_b(4, 6), interleaved(4, 2, 8, 4), zb_v(4, 8)})
    for (const bool forward_only : {false, true})
      for (const Program& program : schedule.programs) {
        const auto overlapped = overlapped_receives(program, forward_only);
        std::vector<int> posted(program.size());
        std::size_t computed = program.size();
        for (std::size_t i = 0; i < program.size(); ++i) {
          if (forward_only && !runs_in_forward_only(program[i].kind)) continue;
          if (!is_transfer(program[i].kind)) {
            computed = i;
            for (const std::size_t receive : overlapped[i]) ++posted[receive];
            continue;
          }
          if (!is_receive(program[i].kind)) continue;
          const bool is_overlapped =
              computed < program.size() &&
              !(program[computed] == Action{ActionKind::kForward, program[i].chunk, program[i].microbatch} &&
                program[i].kind == ActionKind::kRecvGradient);
          EXPECT_EQ(posted[i], is_overlapped ? 1 : 0) << schedule.kind << " action " << i;
        }
      }
}

}  // namespace
}  // namespace colonnade::schedule
