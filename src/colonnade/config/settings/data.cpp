// Settings of data, tokenizer, checkpoints and logs.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kData = &Run::data;
constexpr auto kCheckpoint = &Run::checkpoint;
constexpr auto kFim = &Data::fim;
constexpr auto kLogging = &Run::logging;

void data(Table& t) {
  t.group("data");
  t.add<kData, &Data::data_path>("--data-path", "prefixes of .bin/.idx files, or weight prefix pairs")
      .common();
  t.add<kData, &Data::train_data_path>("--train-data-path", "the same for training alone");
  t.add<kData, &Data::valid_data_path>("--valid-data-path", "the same for validation alone");
  t.add<kData, &Data::test_data_path>("--test-data-path", "the same for the test alone");
  t.add<kData, &Data::data_args_path>("--data-args-path",
                                      "a file with the words of --data-path, which become the run's");
  t.add<kData, &Data::per_split_data_args_path>(
      "--per-split-data-args-path",
      "JSON with the words of --train-data-path and its kin: {\"train\": [...], \"valid\": ..., \"test\": null}");
  t.add<kData, &Data::split>("--split", "shares of training, validation and test").common();
  t.add<kData, &Data::mock_data>("--mock-data", "made-up tokens, no files").common();
  t.add<kData, &Data::data_cache_path>("--data-cache-path",
                                       "folder of the index caches; empty: beside the data");
  t.add<kData, &Data::dataloader_type>(
       "--dataloader-type",
       "single: one pass in order; cyclic: a new random order each epoch, the same for any layout, which is "
       "Megatron's with --no-data-sharding where --global-batch-size divides the samples")
      .choices({"single", "cyclic"})
      .missing({"external"}, "data loader of another program");
  t.add<kData, &Data::num_workers>("--num-workers", "batches prefetched ahead").at_least(0);
  t.add<kData, &Data::reset_position_ids>("--reset-position-ids",
                                          "positions start anew after each end of document");
  t.add<kData, &Data::reset_attention_mask>("--reset-attention-mask",
                                            "no attention over the end of a document");
  t.add<kData, &Data::eod_mask_loss>("--eod-mask-loss", "no loss at the end of a document");
  t.add<kData, &Data::mask_prob>("--mask-prob", "of bert and t5: share of the tokens that are masked")
      .range(0, 1);
  t.add<kData, &Data::short_seq_prob>(
       "--short-seq-prob", "of bert and t5: share of samples that are made shorter than they could be")
      .range(0, 1);
  t.add<kData, &Data::mid_level_dataset_surplus>("--mid-level-dataset-surplus",
                                                 "share of samples that parts of a blend hold in reserve")
      .at_least(0);
  t.add<kData, &Data::sft>("--sft", "data are files of chat messages, and only answers have a loss").common();
  t.add<kData, &Data::sft_tokenizer_prompt_format>(
       "--sft-tokenizer-prompt-format",
       "how --sft writes messages: by the tokenizer's chat template (default), or as Megatron's format of the name")
      .choices({"", "default", "identity", "nemotron-h-aligned", "nemotron-nano-v2"})
      .megatron_default("nemotron-h-aligned");
  t.add<kData, &Data::allow_ambiguous_pad_tokens>(
      "--allow-ambiguous-pad-tokens",
      "a pad that is the end of text too hides its loss; without it such a pad is none");
}

void fill_in_the_middle(Table& t) {
  t.group("fill-in-the-middle");
  t.add<kData, kFim, &FillInTheMiddle::enabled>("--fim-data",
                                                "documents are cut in three and the middle moves to the end");
  t.add<kData, kFim, &FillInTheMiddle::rate>("--fim-rate", "share of documents that are cut").range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::spm_rate>("--fim-spm-rate",
                                                 "share of cut documents that begin with the suffix")
      .range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::split_sample>(
      "--fim-split-sample", "a token between pieces of a document, each of which is cut on its own");
  t.add<kData, kFim, &FillInTheMiddle::fragment_rate>("--fim-fragment-rate",
                                                      "share of such pieces that are cut; unset: --fim-rate")
      .range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::no_prefix>("--fim-no-prefix",
                                                  "documents that begin with this text are left alone");
  t.add<kData, kFim, &FillInTheMiddle::prefix_token>("--fim-prefix-token", "stands before the first part");
  t.add<kData, kFim, &FillInTheMiddle::middle_token>("--fim-middle-token", "stands before the middle");
  t.add<kData, kFim, &FillInTheMiddle::suffix_token>("--fim-suffix-token", "stands before the last part");
  t.add<kData, kFim, &FillInTheMiddle::pad_token>("--fim-pad-token", "fills samples that became shorter");
  t.add<kData, kFim, &FillInTheMiddle::eod_token>("--fim-eod-token", "stands between documents of a sample");
}

void tokenizers(Table& t) {
  t.group("tokenizer");
  t.add<kData, &Data::tokenizer_type>("--tokenizer-type", "how text becomes ids")
      .choices({"", "NullTokenizer", "HuggingFaceTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer",
                "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer", "BertWordPieceLowerCase",
                "BertWordPieceCase", "SFTTokenizer"})
      .common();
  t.add<kData, &Data::tokenizer_model>("--tokenizer-model", "the tokenizer's file or folder").common();
  t.add<kData, &Data::vocab_file>("--vocab-file", "vocab.json of GPT2BPETokenizer, vocab.txt of BERT's");
  t.add<kData, &Data::merge_file>("--merge-file", "merges.txt of GPT2BPETokenizer");
  t.add<kData, &Data::tiktoken_pattern>(
      "--tiktoken-pattern",
      "v1 or v2 (Megatron's .json), gpt2, cl100k_base, o200k_base or llama3 (other files)");
  t.add<kData, &Data::tiktoken_num_special_tokens>("--tiktoken-num-special-tokens",
                                                   "special tokens in front of Megatron's tiktoken files")
      .range(0, 1'000'000);
  t.add<kData, &Data::tokenizer_hf_include_special_tokens>(
       "--tokenizer-hf-include-special-tokens",
       "of HuggingFaceTokenizer: texts get the special ids that a folder's files put around them")
      .off("--tokenizer-hf-no-include-special-tokens");
  t.add<kData, &Data::chat_template>(
      "--chat-template",
      "of --sft: a file or the text of a chat template; empty: the one of the tokenizer's folder");
  t.add<&Run::model, &Model::vocab_size>("--vocab-size", "ids of the vocabulary; 0: from the tokenizer")
      .range(0, 1'000'000'000)
      .common();
  t.add<kData, &Data::vocab_extra_ids>("--vocab-extra-ids",
                                       "of t5: sentinel ids behind the tokenizer's, one for each masked span")
      .range(0, 1'000'000);
}

void checkpoints(Table& t) {
  t.group("checkpoints");
  t.add<kCheckpoint, &Checkpoint::save>("--save",
                                        "run folder; empty: runs/<time>. One with checkpoints needs --load")
      .common();
  t.add<kCheckpoint, &Checkpoint::load>(
       "--load", "run folder or step folder to continue; missing or empty starts a new run")
      .common();
  t.add<kCheckpoint, &Checkpoint::pretrained_checkpoint>(
       "--pretrained-checkpoint", "initial weights: a native checkpoint or a Hugging Face folder")
      .common();
  t.add<kCheckpoint, &Checkpoint::save_interval>(
       "--save-interval", "steps between checkpoints; unset, with --save: at the end and on a stop")
      .alias("--persistent-save-interval")
      .unit("steps")
      .at_least(1)
      .common();
  t.add<kCheckpoint, &Checkpoint::save_retain_interval>(
       "--save-retain-interval", "checkpoints of steps that this divides are kept, earlier others deleted")
      .unit("steps")
      .at_least(1);
  t.add<kCheckpoint, &Checkpoint::exit_after_failed_saves>(
       "--exit-after-failed-saves",
       "the run ends after this many failed saves in a row; unset: it trains on, and ends with an error when the "
       "last save fails")
      .unit("saves")
      .at_least(1);
  t.add<kCheckpoint, &Checkpoint::ckpt_step>("--ckpt-step", "load this step, not the newest").at_least(0);
  t.add<kCheckpoint, &Checkpoint::finetune>("--finetune", "load weights only; counters start anew");
  t.add<kCheckpoint, &Checkpoint::no_load_optim>("--no-load-optim",
                                                 "do not load optimizer states, loss scale and schedule");
  t.add<kCheckpoint, &Checkpoint::no_save_optim>("--no-save-optim", "do not save optimizer states");
  t.add<kCheckpoint, &Checkpoint::exit_on_missing_checkpoint>("--exit-on-missing-checkpoint",
                                                              "a missing --load ends the program");
  t.add<kCheckpoint, &Checkpoint::use_checkpoint_args>(
      "--use-checkpoint-args",
      "the checkpoint's model settings, dropout and tokenizer replace given ones as in Megatron, with a note for "
      "each; without it a contradiction is an error");
  t.add<kCheckpoint, &Checkpoint::use_mp_args_from_checkpoint_args>(
      "--use-mp-args-from-checkpoint-args",
      "with --use-checkpoint-args: tensor, pipeline and expert parallel sizes of the checkpoint's run replace "
      "given ones");
  t.add<kCheckpoint, &Checkpoint::use_tokenizer_model_from_checkpoint_args>(
       "--use-tokenizer-model-from-checkpoint-args",
       "the tokenizer comes from the checkpoint where no flag names one; with --use-checkpoint-args always")
      .off("--no-use-tokenizer-model-from-checkpoint-args")
      .off("--disable-use-tokenizer-model-from-checkpoint-args");
  t.add<kCheckpoint, &Checkpoint::override_ckpt_iteration>(
       "--override-ckpt-iteration",
       "the checkpoint of --load counts as this iteration: data continue after as many global batches; the "
       "learning-rate schedule continues where it was")
      .range(0, 1'000'000'000);
}

void logs(Table& t) {
  t.group("logging");
  t.add<kLogging, &Logging::log_interval>("--log-interval", "steps between lines")
      .unit("steps")
      .at_least(1)
      .megatron_default("100")
      .common();
  t.add<kLogging, &Logging::tensorboard_dir>(
      "--tensorboard-dir", "folder of TensorBoard event files; empty: tensorboard/ in the run folder");
  t.add<kLogging, &Logging::tensorboard_log_interval>("--tensorboard-log-interval",
                                                      "steps between TensorBoard values")
      .unit("steps")
      .at_least(1);
  t.add<kLogging, &Logging::log_params_norm>("--log-params-norm", "log the norm of all weights");
  t.add<kLogging, &Logging::log_num_zeros_in_grad>("--log-num-zeros-in-grad",
                                                   "log how many gradient elements are zero");
  t.add<kLogging, &Logging::log_timers_to_tensorboard>("--log-timers-to-tensorboard",
                                                       "phase times go to TensorBoard");
  t.add<kLogging, &Logging::log_memory_to_tensorboard>("--log-memory-to-tensorboard",
                                                       "memory goes to TensorBoard");
  t.add<kLogging, &Logging::log_validation_ppl_to_tensorboard>("--log-validation-ppl-to-tensorboard",
                                                               "validation perplexity goes to TensorBoard");
  t.add<kLogging, &Logging::logging_level>(
       "--logging-level",
       "lowest level of messages on standard error, by Python's numbers: above 20 no notes, above 30 no warnings; "
       "errors, losses and the summary are always printed")
      .at_least(0);
}

}  // namespace

void add_data(Table& t) {
  data(t);
  fill_in_the_middle(t);
  tokenizers(t);
  checkpoints(t);
  logs(t);
}

}  // namespace colonnade::config
