// Settings of data, tokenizer and checkpoints.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kData = &Run::data;
constexpr auto kCheckpoint = &Run::checkpoint;
constexpr auto kFim = &Data::fim;

void data(Table& t) {
  t.group("data");
  t.add<kData, &Data::data_path>("--data-path",
                                 "prefixes of .bin/.idx files, or weight prefix pairs for a blend")
      .common();
  t.add<kData, &Data::train_data_path>("--train-data-path", "--data-path of the training split only");
  t.add<kData, &Data::valid_data_path>("--valid-data-path", "--data-path of the validation split only");
  t.add<kData, &Data::test_data_path>("--test-data-path", "--data-path of the test split only");
  t.add<kData, &Data::data_args_path>("--data-args-path", "file that contains the value of --data-path");
  t.add<kData, &Data::per_split_data_args_path>(
      "--per-split-data-args-path",
      "JSON file with the data paths per split: {\"train\": [...], \"valid\": ..., \"test\": null}");
  t.add<kData, &Data::split>("--split", "weights of the training, validation and test splits").common();
  t.add<kData, &Data::mock_data>("--mock-data", "synthetic mock data, no files").common();
  t.add<kData, &Data::data_cache_path>("--data-cache-path",
                                       "folder of the index caches; empty: next to the data");
  t.add<kData, &Data::dataloader_type>(
       "--dataloader-type",
       "single: sequential, one pass; cyclic: reshuffled every epoch, layout-independent, equal "
       "to Megatron's --no-data-sharding if --global-batch-size divides the samples")
      .choices({"single", "cyclic"})
      .unsupported({"external"}, "external data loader");
  t.add<kData, &Data::num_workers>("--num-workers", "number of prefetched batches").at_least(0);
  t.add<kData, &Data::reset_position_ids>("--reset-position-ids",
                                          "reset position ids after each end-of-document token");
  t.add<kData, &Data::reset_attention_mask>("--reset-attention-mask",
                                            "no attention across document boundaries");
  t.add<kData, &Data::inter_document_masking>(
      "--dataloader-inter-document-masking",
      "no attention across sequences of the data within a sample, and position ids restart there");
  t.add<kData, &Data::eod_mask_loss>("--eod-mask-loss", "mask the loss at end-of-document tokens");
  t.add<kData, &Data::mask_prob>("--mask-prob", "fraction of masked tokens (bert, t5)").range(0, 1);
  t.add<kData, &Data::short_seq_prob>("--short-seq-prob",
                                      "fraction of samples shortened on purpose (bert, t5)")
      .range(0, 1);
  t.add<kData, &Data::mid_level_dataset_surplus>("--mid-level-dataset-surplus",
                                                 "fraction of surplus samples built per dataset of a blend")
      .at_least(0);
  t.add<kData, &Data::sft>("--sft", "supervised fine-tuning on files of chat messages, loss on answers only")
      .common();
  t.add<kData, &Data::sft_tokenizer_prompt_format>(
       "--sft-tokenizer-prompt-format",
       "prompt format of --sft: the tokenizer's chat template (default) or a Megatron format of "
       "this name")
      .choices({"", "default", "identity", "nemotron-h-aligned", "nemotron-nano-v2"})
      .megatron_default("nemotron-h-aligned");
  t.add<kData, &Data::allow_ambiguous_pad_tokens>(
      "--allow-ambiguous-pad-tokens",
      "mask the loss at a pad token that is also the end-of-text token; without it such a pad "
      "token is ignored");
}

void fill_in_the_middle(Table& t) {
  t.group("fill-in-the-middle");
  t.add<kData, kFim, &FillInTheMiddle::enabled>(
      "--fim-data", "fill-in-the-middle: split documents in three and move the middle to the end");
  t.add<kData, kFim, &FillInTheMiddle::rate>("--fim-rate", "fraction of documents that are split")
      .range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::spm_rate>("--fim-spm-rate",
                                                 "fraction of split documents in suffix-prefix-middle order")
      .range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::split_sample>(
      "--fim-split-sample",
      "token that separates the fragments of a document, each of which is split on its own");
  t.add<kData, kFim, &FillInTheMiddle::fragment_rate>(
       "--fim-fragment-rate", "fraction of fragments that are split; unset: --fim-rate")
      .range(0, 1);
  t.add<kData, kFim, &FillInTheMiddle::no_prefix>("--fim-no-prefix",
                                                  "documents that start with this text are not split");
  t.add<kData, kFim, &FillInTheMiddle::prefix_token>("--fim-prefix-token", "token before the prefix");
  t.add<kData, kFim, &FillInTheMiddle::middle_token>("--fim-middle-token", "token before the middle");
  t.add<kData, kFim, &FillInTheMiddle::suffix_token>("--fim-suffix-token", "token before the suffix");
  t.add<kData, kFim, &FillInTheMiddle::pad_token>("--fim-pad-token", "padding token of shortened samples");
  t.add<kData, kFim, &FillInTheMiddle::eod_token>("--fim-eod-token",
                                                  "token between the documents of a sample");
}

void tokenizers(Table& t) {
  t.group("tokenizer");
  t.add<kData, &Data::tokenizer_type>("--tokenizer-type", "tokenizer implementation")
      .choices({"", "NullTokenizer", "HuggingFaceTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer",
                "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer", "BertWordPieceLowerCase",
                "BertWordPieceCase", "SFTTokenizer"})
      .common();
  t.add<kData, &Data::tokenizer_model>("--tokenizer-model", "tokenizer file or folder").common();
  t.add<kData, &Data::vocab_file>("--vocab-file",
                                  "vocab.json of GPT2BPETokenizer, vocab.txt of BERT tokenizers");
  t.add<kData, &Data::merge_file>("--merge-file", "merges.txt of GPT2BPETokenizer");
  t.add<kData, &Data::tiktoken_pattern>(
      "--tiktoken-pattern",
      "split pattern: v1 or v2 (Megatron's .json), gpt2, cl100k_base, o200k_base or llama3 "
      "(other files)");
  t.add<kData, &Data::tiktoken_num_special_tokens>(
       "--tiktoken-num-special-tokens",
       "number of special tokens before the vocabulary of Megatron's tiktoken files")
      .range(0, 1'000'000);
  t.add<kData, &Data::tokenizer_hf_include_special_tokens>(
       "--tokenizer-hf-include-special-tokens",
       "HuggingFaceTokenizer: add the special tokens (BOS, EOS, ...) that the tokenizer folder "
       "defines around texts")
      .off_alias("--tokenizer-hf-no-include-special-tokens");
  t.add<kData, &Data::chat_template>(
      "--chat-template",
      "chat template of --sft: a file or the template text; empty: the tokenizer folder's "
      "template");
  t.add<&Run::model, &Model::vocab_size>("--vocab-size", "vocabulary size; 0: from the tokenizer")
      .range(0, 1'000'000'000)
      .common();
  t.add<kData, &Data::vocab_extra_ids>(
       "--vocab-extra-ids", "sentinel ids after the tokenizer's vocabulary, one per masked span (t5)")
      .range(0, 1'000'000);
}

void checkpoints(Table& t) {
  t.group("checkpoints");
  t.add<kCheckpoint, &Checkpoint::save>(
       "--save", "run folder; empty: runs/<time>; one with checkpoints requires --load")
      .common();
  t.add<kCheckpoint, &Checkpoint::load>(
       "--load", "folder to resume, also Megatron's; a missing or empty one starts a new run")
      .common();
  t.add<kCheckpoint, &Checkpoint::pretrained_checkpoint>(
       "--pretrained-checkpoint", "initial weights: a native, Hugging Face or Megatron checkpoint")
      .common();
  t.add<kCheckpoint, &Checkpoint::save_interval>(
       "--save-interval", "steps between checkpoints; unset, with --save: at the end and on a stop")
      .alias("--persistent-save-interval")
      .unit("steps")
      .at_least(1)
      .common();
  t.add<kCheckpoint, &Checkpoint::ckpt_format>(
       "--ckpt-format",
       "format of saved checkpoints: native, or Megatron's torch_dist, which Megatron loads; with torch, torch_dcp and "
       "fsdp_dtensor native ones are saved")
      .choices({"native", "torch_dist", "torch", "torch_dcp", "fsdp_dtensor"})
      .megatron_default("torch_dist");
  t.add<kCheckpoint, &Checkpoint::save_hf>("--save-hf",
                                           "folder for the model as Hugging Face folders iter_0000100, ...")
      .colonnade_only();
  t.add<kCheckpoint, &Checkpoint::save_hf_interval>(
       "--save-hf-interval", "steps between exports to --save-hf; unset: one at the end")
      .unit("steps")
      .at_least(1)
      .colonnade_only();
  t.add<kCheckpoint, &Checkpoint::save_retain_interval>(
       "--save-retain-interval",
       "retain checkpoints whose step is a multiple of this; delete other older ones")
      .unit("steps")
      .at_least(1);
  t.add<kCheckpoint, &Checkpoint::exit_after_failed_saves>(
       "--exit-after-failed-saves",
       "exit after this many consecutive failed saves; unset: continue, and exit with an error "
       "if the last save fails")
      .unit("saves")
      .at_least(1);
}

void loading(Table& t) {
  t.add<kCheckpoint, &Checkpoint::ckpt_step>("--ckpt-step", "step to load instead of the latest").at_least(0);
  t.add<kCheckpoint, &Checkpoint::finetune>("--finetune", "load weights only and reset counters");
  t.add<kCheckpoint, &Checkpoint::no_load_optim>("--no-load-optim",
                                                 "do not load optimizer states, loss scale and schedule");
  t.add<kCheckpoint, &Checkpoint::no_save_optim>("--no-save-optim", "do not save optimizer states");
  t.add<kCheckpoint, &Checkpoint::exit_on_missing_checkpoint>("--exit-on-missing-checkpoint",
                                                              "exit if --load has no checkpoint");
  t.add<kCheckpoint, &Checkpoint::use_checkpoint_args>(
      "--use-checkpoint-args",
      "the checkpoint's model settings, dropout and tokenizer replace given ones as in "
      "Megatron, with a note each; otherwise a mismatch is an error");
  t.add<kCheckpoint, &Checkpoint::use_mp_args_from_checkpoint_args>(
      "--use-mp-args-from-checkpoint-args",
      "with --use-checkpoint-args: also use the checkpoint's tensor-, pipeline- and "
      "expert-parallel sizes");
  t.add<kCheckpoint, &Checkpoint::use_tokenizer_model_from_checkpoint_args>(
       "--use-tokenizer-model-from-checkpoint-args",
       "use the checkpoint's tokenizer if no flag names one; with --use-checkpoint-args always")
      .off_alias("--no-use-tokenizer-model-from-checkpoint-args")
      .off_alias("--disable-use-tokenizer-model-from-checkpoint-args");
  t.add<kCheckpoint, &Checkpoint::override_ckpt_iteration>(
       "--override-ckpt-iteration",
       "iteration assigned to the checkpoint of --load: data continue after that many global "
       "batches; the learning-rate schedule is unchanged")
      .range(0, 1'000'000'000);
}

}  // namespace

void add_data(Table& t) {
  data(t);
  fill_in_the_middle(t);
  tokenizers(t);
  checkpoints(t);
  loading(t);
}

}  // namespace colonnade::config
