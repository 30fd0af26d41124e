// Runs of save and load tests: models, layouts and settings.
#pragma once

#include <filesystem>
#include <string>

#include "colonnade/job/checkpoint.h"
#include "job/runs.h"

namespace colonnade::job::saved {

inline constexpr const char* kSizes =
    "--num-layers 2 --hidden-size 16 --ffn-hidden-size 24 --num-attention-heads 4 --vocab-size 37 "
    "--seq-length 8 "
    "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 4 --make-vocab-size-divisible-by "
    "8 ";
inline constexpr const char* kLlamaRun =
    "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --hidden-dropout "
    "0 "
    "--attention-dropout 0 --group-query-attention --num-query-groups 2 "
    "--untie-embeddings-and-output-weights ";
inline constexpr const char* kOss =
    "--position-embedding-type rope --normalization RMSNorm --hidden-dropout 0 --attention-dropout 0 "
    "--group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights ";
/// Learned positions, LayerNorm, biases, dropout and tied embeddings; GPT-2's transposed matrices.
inline constexpr const char* kGpt2 = "--openai-gelu ";

struct Saved {
  int world;
  const char* flags;
};
inline constexpr Saved kOne{1, ""};
inline constexpr Saved kTp2Pp2{
    4, "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel"};
inline constexpr Saved kDp2Distributed{
    2, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 700"};
inline constexpr Saved kTp4Dp2Distributed{
    8, "--tensor-model-parallel-size 4 --use-distributed-optimizer --ddp-bucket-size 500"};
inline constexpr Saved kEmptyStage{
    3,
    "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Et||tL --use-distributed-optimizer"};
/// First and last stage on one rank, with all communication overlapped.
inline constexpr Saved kVeeDp2Distributed{
    4,
    "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --pipeline-model-parallel-layout E|t|t|L "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 700"};
inline constexpr Saved kSaved[] = {kOne, kTp2Pp2, kDp2Distributed, kTp4Dp2Distributed, kVeeDp2Distributed};

inline constexpr const char* kExpertFlags =
    "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 12 --moe-aux-loss-coeff 0.01 ";
/// Experts unsharded, over ep with one owner each, over ep and etp, replicated over edp, and on two stages.
inline constexpr Saved kWithExperts[] = {
    kOne,
    {2, "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --use-distributed-optimizer"},
    {4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--use-distributed-optimizer --ddp-bucket-size 500"},
    {4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"},
    {4, "--pipeline-model-parallel-size 2 --expert-model-parallel-size 2"},
    {4,
     "--expert-model-parallel-size 2 --use-distributed-optimizer --num-distributed-optimizer-instances 2"}};

inline config::Run saved_run(const Saved& layout, const std::string& flags) {
  using test::operator+;
  return test::settings(layout.world, test::words(kSizes + flags) + test::words(layout.flags));
}

inline void save_in(Job& job, const std::filesystem::path& folder) {
  const auto result = save(job, folder);
  EXPECT_TRUE(result.ok) << result.problem;
}

}  // namespace colonnade::job::saved
