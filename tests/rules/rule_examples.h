// Runs that break a rule: the examples of the rule table, and more on the same valid runs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "colonnade/config/derive.h"
#include "colonnade/rules/rules_page.h"

namespace colonnade::test {

inline std::vector<rules::Problem> problems_of(config::Run r) {
  config::derive(r);
  return rules::check(r);
}

inline std::vector<std::string> ids_of(const config::Run& r) {
  std::vector<std::string> ids;
  for (const rules::Problem& problem : problems_of(r)) ids.push_back(problem.id);
  return ids;
}

inline const rules::RuleExample& example_of(const std::string& id) {
  static const std::vector<rules::RuleExample> table = rules::rule_examples();
  return *std::ranges::find(table, id, &rules::RuleExample::id);
}

/// Example "rule: key=value; ..." on the valid run of that rule's table example.
inline rules::RuleExample example(const std::string& text) {
  const std::string id = text.substr(0, text.find(": "));
  return {id, example_of(id).valid, rules::read_edits(text.substr(id.size() + 2))};
}

inline std::string words(const rules::RuleExample& e) {
  std::string text = e.id + ":";
  for (const rules::Edit& edit : e.edits) text += " " + edit.key + "=" + edit.value;
  return text;
}

/// Further sizes and pipeline splits that break rules: "rule: key=value; key=value".
inline constexpr const char* kMoreOfShapes[] = {
    "heads-tensor: num_attention_heads=6; hidden_size=96; tensor_model_parallel_size=4",
    "world: world_size=1",
    "world: world_size=7; pipeline_model_parallel_size=1; global_batch_size=64",
    "world: world_size=7; pipeline_model_parallel_size=1; global_batch_size=63",
    "world: tensor_model_parallel_size=8; world_size=12",
    "batch: global_batch_size=2",
    "rotary-dims: position_embedding_type=rope; rotary_percent=0",
    ("rotary-dims: multi_latent_attention=true; qk_head_dim=8; qk_pos_emb_head_dim=4; v_head_dim=8; "
     "kv_lora_rank=16; rope_type=rope; rotary_percent=0.8"),
    "pipeline-split: num_layers=1",
    "pipeline-split: pipeline_model_parallel_layout=Ett|tL",
    "pipeline-split: pipeline_model_parallel_layout=Et*8L|",
    "pipeline-split: num_virtual_stages_per_pipeline_rank=3",
    "pipeline-split: num_layers_per_virtual_pipeline_stage=3",
    "pipeline-split: pipeline_model_parallel_layout=Et*4|t*4L; decoder_last_pipeline_num_layers=4",
    "pipeline-split: decoder_first_pipeline_num_layers=3; account_for_loss_in_pipeline_split=true",
    "pipeline-split: num_virtual_stages_per_pipeline_rank=2; num_layers_per_virtual_pipeline_stage=2",
    "pipeline-schedule: pipeline_schedule=gpipe; num_virtual_stages_per_pipeline_rank=2",
    "pipeline-schedule: pipeline_schedule=zb-h1; num_virtual_stages_per_pipeline_rank=2",
    "pipeline-schedule: pipeline_schedule=zb-v; num_layers_per_virtual_pipeline_stage=1",
    "pipeline-schedule: pipeline_schedule=dualpipe-v; pipeline_model_parallel_layout=Et*4|t*4L",
    "pipeline-split: pipeline_schedule=zb-v; num_layers=6",
    "pipeline-split: pipeline_schedule=zb-v; num_layers=4; pipeline_model_parallel_size=4; world_size=16",
    "pipeline-split: pipeline_schedule=dualpipe-v; num_layers=7; mtp_num_layers=1",
    "pipeline-split: pipeline_schedule=interleaved; num_layers=7",
    "pipeline-split: num_virtual_stages_per_pipeline_rank=3; pipeline_schedule=1f1b; num_layers=7",
    "pipeline-split: num_layers_per_virtual_pipeline_stage=2; pipeline_model_parallel_layout=Et*4|t*4L",
    "pipeline-split: mtp_num_layers=2; num_layers=7",
    "pipeline-split: mtp_num_layers=1; pipeline_model_parallel_layout=Et*4|t*4L",
    ("pipeline-split: model=t5; encoder_num_layers=4; decoder_seq_length=16; vocab_extra_ids=10; "
     "num_layers=7; pipeline_model_parallel_size=4; world_size=16"),
    ("pipeline-split: model=t5; encoder_num_layers=2; decoder_seq_length=16; vocab_extra_ids=10; "
     "num_layers=7; pipeline_schedule=zb-v"),
    ("pipeline-split: model=t5; encoder_num_layers=8; decoder_seq_length=16; vocab_extra_ids=10; "
     "pipeline_model_parallel_layout=Et*8|e*8L"),
    "delay-wgrad: delay_wgrad_compute=true; pipeline_model_parallel_size=1",
    "microbatch-group: num_virtual_stages_per_pipeline_rank=2; global_batch_size=4",
    ("microbatch-group: num_virtual_stages_per_pipeline_rank=2; "
     "microbatch_group_size_per_virtual_pipeline_stage=1"),
};

inline constexpr const char* kMoreOfTraining[] = {
    "train-length-zero: train_iters=unset; train_samples=0",
    "warmup-decay: lr_warmup_fraction=1",
    "warmup-decay: train_iters=unset; train_samples=100; lr_warmup_samples=100",
    "wsd-length: lr_decay_style=WSD; lr_wsd_decay_iters=101",
    "loss-scale: initial_loss_scale=8; min_loss_scale=16",
    "data-once: data_path=a",
    "data-once: mock_data=false; data_path=a; train_data_path=b",
    "data-paths: mock_data=false; train_data_path=1 a -1 b",
    "vocabulary: vocab_size=0; tokenizer_type=NullTokenizer",
    "retain-interval: save_retain_interval=15",
    "bert-heads: model=gpt; bert_binary_head=false",
    "bert-heads: model=gpt; num_tokentypes=2",
    "hidden-tokens: model=bert; calculate_per_token_loss=false; mask_prob=0",
    "hidden-tokens: model=bert; calculate_per_token_loss=false; seq_length=9",
    ("hidden-tokens: model=t5; encoder_num_layers=8; decoder_seq_length=8; vocab_extra_ids=10; "
     "mask_prob=0.033"),
    ("ambiguous-pads: model=t5; encoder_num_layers=8; decoder_seq_length=16; vocab_extra_ids=10; sft=false; "
     "allow_ambiguous_pad_tokens=true"),
};

/// On top of the valid MoE run.
inline constexpr const char* kMoreOfExperts[] = {
    "experts-width: num_experts=0; moe_ffn_hidden_size=32; moe_layer_freq=[1]*8",
    "experts-world: num_experts=0; expert_tensor_parallel_size=8",
    "experts-ranks: expert_model_parallel_size=16; world_size=64; global_batch_size=64",
    "experts-world: expert_tensor_parallel_size=4; expert_model_parallel_size=2",
    "experts-world: expert_tensor_parallel_size=8",
    ("experts-world: expert_tensor_parallel_size=1; expert_model_parallel_size=8; "
     "tensor_model_parallel_size=1; sequence_parallel=false; world_size=8"),
    "experts-rank-order: use_tp_pp_dp_mapping=true; expert_tensor_parallel_size=1",
    "experts-layers: moe_layer_freq=0",
    "experts-layers: moe_layer_freq=[0]*8",
    "experts-layers: moe_layer_freq=([0]*3+[1]*58)",
    "experts-layers: moe_layer_freq=every",
    "experts-ffn: ffn_hidden_size=98; tensor_model_parallel_size=1; expert_tensor_parallel_size=4",
    "router-topk: moe_router_num_groups=4; moe_router_group_topk=1; moe_router_topk=3",
    "router-topk: num_experts=1; moe_router_topk=2",
    "router-groups: moe_router_num_groups=2; moe_router_group_topk=4; moe_router_topk=4",
    "router-groups-experts: num_experts=256; moe_router_num_groups=128; moe_router_group_topk=2",
    "router-groups-topk: moe_router_num_groups=8; moe_router_group_topk=5; moe_router_topk=4",
    "moe-balancing-types: moe_router_load_balancing_type=sinkhorn aux_loss; moe_aux_loss_coeff=0 0.1",
    "balancing-weights: moe_router_load_balancing_type=aux_loss seq_aux_loss; moe_aux_loss_coeff=0.1",
    "sinkhorn-choice: moe_router_load_balancing_type=sinkhorn; moe_expert_capacity_factor=1",
    "sinkhorn-choice: moe_router_load_balancing_type=sinkhorn; moe_expert_capacity_factor=1; "
    "moe_pad_expert_input_to_capacity=true",
    "capacity-needed: moe_pad_expert_input_to_capacity=true; moe_token_drop_policy=position",
};

inline constexpr const char* kMoreOfHybrid[] = {
    "hybrid-documents: reset_position_ids=false; calculate_per_token_loss=false",
    "hybrid-tokens: max_seqlen_per_dp_cp_rank=17",
    "hybrid-tokens: sequence_parallel=true; tensor_model_parallel_size=4; max_seqlen_per_dp_cp_rank=34",
    "hybrid-sequence: world_size=64; global_batch_size=16; seq_length=48",
    "hybrid-gathered: num_experts=8; add_bias_linear=false; sequence_parallel=true",
    "hybrid-capacity: num_experts=8; add_bias_linear=false; sequence_parallel=true; "
    "moe_token_dispatcher_type=alltoall; moe_expert_capacity_factor=2; moe_pad_expert_input_to_capacity=true",
    "hybrid-balance: num_experts=8; add_bias_linear=false; sequence_parallel=true; "
    "moe_token_dispatcher_type=alltoall; moe_aux_loss_coeff=0.01 0.02; "
    "moe_router_load_balancing_type=seq_aux_loss global_aux_loss",
    "microbatch-group: hybrid_context_parallel=true; reset_position_ids=true; reset_attention_mask=true; "
    "calculate_per_token_loss=true; micro_batch_size=1; num_virtual_stages_per_pipeline_rank=2; "
    "microbatch_group_size_per_virtual_pipeline_stage=1",
    // Rules for context parallelism apply to the largest group.
    "context-heads: context_parallel_size=1; hybrid_context_parallel=true; world_size=64; cp_comm_type=a2a",
};

/// On top of the valid run of the validation rules.
inline constexpr const char* kMoreOfValidation[] = {
    "validation-weights: valid_data_path=; train_data_path=; data_path=0.5 a 0.5 b; "
    "multiple_validation_sets=false",
    "validation-weights: valid_data_path=; train_data_path=; data_path=1 a; multiple_validation_sets=false",
    "validation-set-names: validation_set_names=books books",
    "validation-set-names: multiple_validation_sets=false; validation_set_names=books code",
    "validation-set-names: valid_data_path=1 b; validation_set_names=books code",
};

/// Examples of the table and those above.
inline std::vector<rules::RuleExample> all_examples() {
  std::vector<rules::RuleExample> all = rules::rule_examples();
  for (const char* text : kMoreOfShapes) all.push_back(example(text));
  for (const char* text : kMoreOfTraining) all.push_back(example(text));
  for (const char* text : kMoreOfExperts) all.push_back(example(text));
  for (const char* text : kMoreOfHybrid) all.push_back(example(text));
  for (const char* text : kMoreOfValidation) all.push_back(example(text));
  const auto by_hand = [&](void (*breaks)(config::Run&)) {
    rules::RuleExample outside{"range", example_of("heads").valid, {}};
    breaks(outside.valid);
    all.push_back(outside);
  };
  by_hand([](config::Run& r) { r.model.hidden_dropout = 1.5; });
  by_hand([](config::Run& r) { r.data.num_workers = -1; });
  by_hand([](config::Run& r) { r.parallel.pipeline_schedule = "zigzag"; });
  return all;
}

}  // namespace colonnade::test
