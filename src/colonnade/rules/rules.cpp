// Evaluates the rule table and formats the messages.
#include "colonnade/rules/rules.h"

#include <algorithm>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

constexpr const char* kRange = "range";

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const RuleGroup& group : rule_groups())
    rules.insert(rules.end(), group.rules.begin(), group.rules.end());
  return rules;
}

/// Whether the setting already has the edit's value.
bool is_no_op(const config::Run& run, const Edit& edit) {
  return edit.key != "world_size" && config::text_of(run, config::setting(edit.key)) == edit.value;
}

std::string edit_text(const Edit& edit) {
  if (edit.key == "world_size") return fmt::format("start {} ranks", edit.value);
  const config::Setting& s = config::setting(edit.key);
  if (s.kind == config::Kind::kSwitch)
    return fmt::format("add {}", edit.value == "true" ? s.flag : s.off_flag());
  if (edit.value.empty() || edit.value == "unset") return fmt::format("remove {}", s.flag);
  return fmt::format("set {} {}", s.flag, edit.value);
}

std::string message(const config::Run& run, const Finding& f) {
  std::string fix = f.fix;
  for (const Edit& edit : f.edits) {
    if (!f.fix.empty() || is_no_op(run, edit)) continue;
    fix += (fix.empty() ? "" : " and ") + edit_text(edit);
  }
  if (f.rule.empty()) return fmt::format("{}; {}", f.thing, fix);
  return fmt::format("{} {}; got {}; {}", f.thing, f.rule, f.got, fix);
}

/// Whether every setting of the finding determines the samples of a run.
bool concerns_samples_only(const Finding& found) {
  return std::ranges::all_of(found.edits, [](const Edit& edit) {
    return edit.key != "world_size" && config::reads(config::Use::kInspect, config::setting(edit.key));
  });
}

/// Whether `purpose` does not check for the finding.
bool is_out_of_scope(const Rule& rule, const Finding& found, Purpose purpose) {
  if (purpose == Purpose::kData) return (found.missing && !found.of_data) || !concerns_samples_only(found);
  if (purpose != Purpose::kPlan) return false;
  return found.of_device || (found.missing && (rule.training || found.of_data));
}

/// Whether a setting of the finding could not be parsed, which is reported already.
bool has_parse_fault(const config::Run& run, const Rule& rule, const Finding& found) {
  for (const Edit& edit : found.edits)
    if (run.invalid_keys.contains(edit.key)) return true;
  std::istringstream keys(rule.inputs);
  for (std::string key; keys >> key;)
    if (run.invalid_keys.contains(key)) return true;
  return false;
}

}  // namespace

std::span<const RuleGroup> rule_groups() {
  static const RuleGroup kGroups[] = {
      {"Model, rank and batch sizes", shape_rules()},
      {"Norms and layers without RoPE", norm_rules()},
      {"Batch sizes that change during a run", batch_rules()},
      {"Mixture of experts", moe_rules(), "num_experts=8; add_bias_linear=false; sequence_parallel=true"},
      {"Upcycling and latent experts", expert_weight_rules(),
       "num_experts=8; add_bias_linear=false; sequence_parallel=true"},
      {"Multi-latent attention and multi-token prediction", latent_rules(),
       "multi_latent_attention=true; position_embedding_type=rope; qk_head_dim=8; qk_pos_emb_head_dim=4; "
       "v_head_dim=8; kv_lora_rank=16"},
      {"Encoder-decoder models (T5)", t5_rules(),
       "model=t5; encoder_num_layers=8; decoder_seq_length=16; vocab_extra_ids=10"},
      {"BERT", bert_rules(), "model=bert; calculate_per_token_loss=false"},
      {"Context parallelism", context_rules(), "context_parallel_size=2"},
      {"Hybrid context parallelism", hybrid_rules(),
       "hybrid_context_parallel=true; reset_position_ids=true; reset_attention_mask=true; "
       "calculate_per_token_loss=true; micro_batch_size=1"},
      {"Pipeline, data parallelism and communication", pipeline_rules()},
      {"Sharding over data-parallel ranks", sharding_rules()},
      {"Activation recomputation", recompute_rules()},
      {"Training length, learning rate and weight decay", schedule_rules()},
      {"Optimizer", optimizer_rules()},
      {"Data, tokenizer and checkpoints", data_rules()},
      {"Validation", validation_rules(),
       "mock_data=false; train_data_path=a; valid_data_path=b c; eval_interval=10; full_validation=true; "
       "multiple_validation_sets=true"},
      {"Profiles, memory snapshots and energy", profiling_rules()},
      {"Settings without effect", effect_rules()},
  };
  return kGroups;
}

std::vector<Problem> check(const config::Run& run, Purpose purpose) {
  std::vector<Problem> problems;
  for (const config::RangeFault& fault : config::out_of_range(run)) {
    const config::Setting& s = config::setting(fault.key);
    Problem problem{
        kRange,
        fmt::format("{} {}; got {}; the default is {}", s.flag, fault.rule, fault.got, s.default_text()),
        {}};
    problem.edits.push_back({fault.key, s.default_text()});
    problems.push_back(std::move(problem));
  }
  for (const Rule& rule : all_rules()) {
    if (rule.training && purpose == Purpose::kModel) continue;
    const auto found = rule.check(run);
    if (!found || has_parse_fault(run, rule, *found) || is_out_of_scope(rule, *found, purpose)) continue;
    problems.push_back({rule.id, message(run, *found), found->edits});
  }
  return problems;
}

std::optional<std::string> first_broken(const config::Run& run, Purpose purpose) {
  static const std::vector<Rule> kRules = all_rules();
  for (const Rule& rule : kRules) {
    if (rule.training && purpose == Purpose::kModel) continue;
    const auto found = rule.check(run);
    if (found && !has_parse_fault(run, rule, *found) && !is_out_of_scope(rule, *found, purpose))
      return rule.id;
  }
  return std::nullopt;
}

std::string missing_for_training(const config::Run& run) {
  std::string things;
  for (const Rule& rule : all_rules()) {
    const auto found = rule.check(run);
    if (found && found->missing && (rule.training || found->of_data))
      things += (things.empty() ? "" : ", ") + found->thing;
  }
  return things;
}

std::vector<std::string> rule_ids() {
  std::vector<std::string> ids{kRange};
  for (const Rule& rule : all_rules()) ids.emplace_back(rule.id);
  return ids;
}

std::string report(const std::vector<Problem>& problems) {
  std::string out;
  for (const Problem& problem : problems) out += problem.line() + "\n";
  return out;
}

void require(const config::Run& run, Purpose purpose, std::vector<std::string> faults) {
  for (const Problem& problem : check(run, purpose)) faults.push_back(problem.line());
  config::require_none(faults);
}

std::int64_t num_microbatches(const config::Run& run) {
  const std::int64_t step = run.training.micro_batch_size * run.parallel.data_parallel_size();
  const std::int64_t batch = config::final_batch_size(run.training);
  return step < 1 || batch % step != 0 ? 0 : batch / step;
}

}  // namespace colonnade::rules
