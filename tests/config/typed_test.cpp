// Command-line words are never ignored silently: negated always-on switches, zeros, old names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/files.h"
#include "config/lines.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Typed, NegatedAlwaysOnFlagsAreNoted) {
  EXPECT_THAT(
      run_of("--no-attention-softmax-in-fp32 --no-accumulate-allreduce-grads-in-fp32").notes,
      ::testing::UnorderedElementsAre(AllOf(HasSubstr("--no-attention-softmax-in-fp32: is ignored"),
                                            HasSubstr("softmax is computed in fp32")),
                                      AllOf(HasSubstr("--no-accumulate-allreduce-grads-in-fp32: is ignored"),
                                            HasSubstr("gradients are accumulated in fp32"))));
}

TEST(Typed, NegatedFlagsWithoutEffectAreSilent) {
  for (const char* flag : {"--no-async-save", "--no-profile", "--no-enable-cuda-graph", "--no-test-mode"})
    EXPECT_THAT(run_of(flag).notes, IsEmpty()) << flag;
}

TEST(Typed, ZeroForUnsetIsRejectedOnTheCommandLine) {
  for (const char* flag :
       {"--global-batch-size", "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"}) {
    EXPECT_THAT(faults_of(std::string(flag) + " 0"),
                ElementsAre(HasSubstr(std::string(flag) + " must be above 0; got 0; remove it")));
    EXPECT_THAT(faults_of(std::string(flag) + " 1"), IsEmpty());
  }
  const std::string file = ::testing::TempDir() + "zeros.yaml";
  write_file_atomically(file, "global_batch_size: 0\ndecoder_first_pipeline_num_layers: 0\n");
  EXPECT_THAT(faults_of("--config " + file), IsEmpty()) << "as in a dumped file";
}

TEST(Typed, UnsupportedOldNamesSuggestTheNewOnes) {
  EXPECT_THAT(faults_of("--model-parallel-size 4"),
              ElementsAre(HasSubstr("got \"4\"; write --tensor-model-parallel-size")));
  EXPECT_THAT(faults_of("--checkpoint-activations"), ElementsAre(HasSubstr("write --recompute-granularity")));
  EXPECT_THAT(run_of("--cp-comm-type allgather p2p").parallel.cp_comm_type, ElementsAre("all_gather", "p2p"));
}

}  // namespace
}  // namespace colonnade::config
