// Sent tensors are let go while the pass still runs, and never too early.
#include "colonnade/schedule/releases.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace colonnade::schedule {
namespace {

/// Sends alive at once on `rank`, at worst.
std::size_t most_unreleased(const Schedule& schedule, int rank) {
  const auto release = releases(schedule, rank);
  const auto& program = schedule.programs[static_cast<std::size_t>(rank)];
  std::size_t alive = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].act == Do::kSendActivation || program[i].act == Do::kSendGradient) ++alive;
    most = std::max(most, alive);
    for (const std::size_t sent : release[i]) {
      EXPECT_LT(sent, i);
      --alive;
    }
  }
  return most;
}

TEST(Releases, KeepAFewSendsWhateverTheNumberOfMicrobatches) {
  for (const int ranks : {2, 4, 8})
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(most_unreleased(one_f_one_b(ranks, 64), rank), static_cast<std::size_t>(2 * ranks + 2))
          << rank << " of " << ranks;
      EXPECT_LE(most_unreleased(interleaved(ranks, 2, 64, ranks), rank),
                static_cast<std::size_t>(8 * ranks + 4))
          << rank << " of " << ranks;
      EXPECT_LE(most_unreleased(zb_h1(ranks, 64), rank), static_cast<std::size_t>(2 * ranks + 2))
          << rank << " of " << ranks;
      for (const auto& vee : {zb_v(ranks, 64), dualpipe_v(ranks, 64)})
        EXPECT_LE(most_unreleased(vee, rank), static_cast<std::size_t>(8 * ranks + 4))
            << vee.kind << ' ' << rank << " of " << ranks;
    }
}

TEST(Releases, OfTwoRanksAreAsWorkedOutByHand) {
  // Rank 0: F0 send, F1 send, recv gradient 0, B0, recv gradient 1, B1. The gradient of a micro-batch
  // answers its activation.
  const auto schedule = one_f_one_b(2, 2);
  const auto release = releases(schedule, 0);
  const auto& program = schedule.programs[0];
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].act != Do::kRecvGradient) continue;
    const auto sent =
        std::find(program.begin(), program.end(), Action{Do::kSendActivation, 0, program[i].microbatch});
    ASSERT_FALSE(release[i].empty());
    EXPECT_EQ(release[i][0], static_cast<std::size_t>(sent - program.begin()));
  }
}

TEST(Releases, EvaluationsHaveFewMessagesOnTheirWay) {
  for (const int ranks : {2, 4, 8, 16}) {
    for (const Schedule& s : {one_f_one_b(ranks, 64), gpipe(ranks, 64), zb_h1(ranks, 64),
                              interleaved(ranks, 2, 64, ranks), interleaved(ranks, 4, 64, ranks)})
      EXPECT_EQ(messages_of_evaluations(s), 2U) << s.kind << " on " << ranks;
    for (const Schedule& s : {zb_v(ranks, 64), dualpipe_v(ranks, 64)})
      EXPECT_LE(messages_of_evaluations(s), std::max(2U, static_cast<unsigned>(ranks) / 2)) << s.kind;
  }
  // More micro-batches than ranks go through the first chunks before the second ones take any.
  EXPECT_EQ(messages_of_evaluations(interleaved(2, 2, 64, 32)), 16U);
}

/// A chunk whose messages count one each.
constexpr ChunkMessages kBlocks{1, 1, false};

TEST(HeldMessages, OfTwoRanksAreAsWorkedOutByHand) {
  const auto schedule = one_f_one_b(2, 2);
  // F0 send F1 send recv B0 recv B1: an output until the gradient that answers it has come.
  EXPECT_EQ(held_messages(sound(schedule), 0, {kBlocks}),
            (std::vector<std::int64_t>{0, 1, 1, 2, 2, 1, 1, 0, 0}));
  // recv F0 B0 send recv F1 B1 send: the second activation was sent before the first gradient had come.
  EXPECT_EQ(held_messages(sound(schedule), 1, {kBlocks}),
            (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 1, 2, 2}));
}

TEST(HeldMessages, OutputsMayBeLongerThanInputs) {
  const auto s = sound(one_f_one_b(3, 1));
  const std::vector<ChunkMessages> longer{{1, 10, false}};
  // recv F send recv B send: its output until the gradient that answers it has come, then its input's.
  EXPECT_EQ(held_messages(s, 1, longer), (std::vector<std::int64_t>{0, 0, 10, 10, 0, 1, 1}));
}

TEST(HeldMessages, OfARankWithoutBlocksAreItsGradients) {
  const auto schedule = one_f_one_b(3, 4);
  const Program& program = schedule.programs[1];
  const auto held = held_messages(sound(schedule), 1, {{1, 1, /*empty=*/true}}),
             with_blocks = held_messages(sound(schedule), 1, {kBlocks});
  const auto release = releases(schedule, 1);
  int outputs = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    EXPECT_EQ(with_blocks[i] - held[i], outputs) << i;
    if (program[i].act == Do::kForward) ++outputs;
    for (const std::size_t sent : release[i]) outputs -= program[sent].act == Do::kSendActivation ? 1 : 0;
  }
}

// Chunks of a V hand on where the next one is on their rank: nothing is left behind but what was sent.
TEST(HeldMessages, OfNeighboursWithoutBlocksAreTheirGradients) {
  const auto s = sound(zb_v(2, 6));
  const std::vector<ChunkMessages> empty(2, {1, 1, /*empty=*/true});
  const auto& released = s.messages[1].released;
  const Program& program = s.schedule.programs[1];
  std::ptrdiff_t open = std::ranges::count(program, Do::kSendGradient, &Action::act);
  for (const auto& sends : released)
    open -= std::ranges::count_if(sends, [&](std::size_t i) { return program[i].act == Do::kSendGradient; });
  EXPECT_EQ(held_messages(s, 1, empty).back(), open) << "nothing is lost from micro-batch to micro-batch";
}

TEST(HeldMessages, EndWithWhatMayBeOnItsWay) {
  for (const int ranks : {1, 2, 4})
    for (const Schedule& s : {one_f_one_b(ranks, 8), interleaved(ranks, 2, 8, ranks), zb_h1(ranks, 8),
                              zb_v(ranks, 8), dualpipe_v(ranks, 8), gpipe(ranks, 8)})
      for (int rank = 0; rank < ranks; ++rank) {
        const Program& program = s.programs[static_cast<std::size_t>(rank)];
        auto open = std::ranges::count_if(program, [](const Action& a) { return is_send(a.act); });
        for (const auto& sends : releases(s, rank)) open -= std::ssize(sends);
        const auto held = held_messages(
            sound(s), rank, std::vector<ChunkMessages>(static_cast<std::size_t>(s.chunks), kBlocks));
        EXPECT_EQ(held.back(), open) << s.kind << ' ' << rank << " of " << ranks;
        EXPECT_GE(std::ranges::min(held), 0) << s.kind << ' ' << rank << " of " << ranks;
      }
}

// The peer goes back from the last micro-batch: a gradient behind one that cannot be open stays behind it.
TEST(ReceivesBeside, KeepTheOrderInWhichGradientsWereSent) {
  using enum Do;
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
  using Places = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(receives_beside(schedule.programs[0]), Places(8));
  EXPECT_EQ(receives_beside(schedule.programs[1]), (Places{{}, {2}, {}, {}, {}, {}, {}, {}}));
}

// Every receive but those in front of the first computation, and gradients of the micro-batch that has just
// gone forward, is open beside exactly one computation, the one before its own.
TEST(ReceivesBeside, AreThoseOfWhatIsComputedNext) {
  for (const Schedule& schedule : {gpipe(4, 6), one_f_one_b(4, 6), interleaved(4, 2, 8, 4), zb_v(4, 8)})
    for (const bool forward_only : {false, true})
      for (const Program& program : schedule.programs) {
        const auto beside = receives_beside(program, forward_only);
        std::vector<int> opened(program.size());
        std::size_t computed = program.size();
        for (std::size_t i = 0; i < program.size(); ++i) {
          if (forward_only && !is_forward_part(program[i].act)) continue;
          if (!is_transfer(program[i].act)) {
            computed = i;
            for (const std::size_t receive : beside[i]) ++opened[receive];
            continue;
          }
          if (!is_receive(program[i].act)) continue;
          const bool known =
              computed < program.size() &&
              !(program[computed] == Action{Do::kForward, program[i].chunk, program[i].microbatch} &&
                program[i].act == Do::kRecvGradient);
          EXPECT_EQ(opened[i], known ? 1 : 0) << schedule.kind << " action " << i;
        }
      }
}

}  // namespace
}  // namespace colonnade::schedule
