// Files of a saved step folder besides the weights, retention of folders, and tensors unknown to the model.
#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/job/checkpoint.h"
#include "job/saved_runs.h"

namespace colonnade::job {
namespace {

using at::Tensor;
using checkpoint::test::TempFolder;
using namespace saved;  // from saved_runs.h

TEST(StepFolder, UnknownTensorsAreRejected) {
  const auto run = saved_run(kOne, kLlamaRun);
  const auto check = [&](const std::string& name) {
    const TempFolder folder;
    test::on_jobs(run, [&](Job& job) {
      const auto shot = snapshot(job);
      std::map<std::string, Tensor> tensors{{name, at::ones({2})}};
      for (const auto& slice : shot.model) tensors[slice.name] = slice.data.contiguous();
      checkpoint::write_safetensors(folder.path() / "model.safetensors", tensors);
      write_file_atomically(folder.path() / "config.json", shot.hf_config.dump());
      restore(job, checkpoint::CheckpointReader::open(folder), Restore::kWeights);
    });
  };
  EXPECT_NO_THROW(check("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_THROW(check("model.layers.2.input_layernorm.weight"), DataError);
  EXPECT_THROW(check("model.layers.0.self_attn.q_proj.bias"), DataError);
}

TEST(StepFolder, ConfigJsonHasTheTokenizersBosAndEos) {
  test::on_jobs(saved_run(kOne, kLlamaRun), [&](Job& job) {
    const auto with = snapshot(job, {{"tokenizer", {{"bos_token_id", nullptr}, {"eos_token_id", 36}}}});
    EXPECT_TRUE(with.hf_config.at("bos_token_id").is_null());
    EXPECT_EQ(with.hf_config.at("eos_token_id"), 36);
    EXPECT_TRUE(snapshot(job).hf_config.at("eos_token_id").is_null());
    EXPECT_TRUE(snapshot(job, {{"tokenizer", nullptr}}).hf_config.at("eos_token_id").is_null());
  });
}

TEST(StepFolder, RetentionKeepsMultiplesAndTheNewest) {
  const TempFolder folder;
  test::on_jobs(
      saved_run(kDp2Distributed, std::string(kLlamaRun) + "--save-interval 1 --save-retain-interval 2 "),
      [&](Job& job) {
        for (int step = 0; step < 5; ++step) {
          test::train(job, 1);
          save_in(job, folder);
        }
      });
  std::vector<std::int64_t> left;
  for (const auto& [step, path] : checkpoint::step_folders(folder.path() / "checkpoints"))
    left.push_back(step);
  EXPECT_EQ(left, (std::vector<std::int64_t>{2, 4, 5}));
}

}  // namespace
}  // namespace colonnade::job
