// See flops.h.
#include "colonnade/cost/flops.h"

#include "colonnade/config/stacks.h"
#include "colonnade/cost/model_cost.h"

namespace colonnade::cost {

std::int64_t padded_vocab_size(const config::Model& model, int tensor) {
  const std::int64_t multiple = model.make_vocab_size_divisible_by * tensor;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

SampleLength sample_length(const config::Run& run) {
  return SampleLength(config::sequence_lengths(run.model, run.training));
}

ForwardFlops forward_flops(const ModelCost& model) {
  ForwardFlops sum;
  for (const layout::BlockId& block : model.blocks()) sum += model.block(block).flops();
  return sum;
}

TrainingFlops training_flops_by_part(const ModelCost& model, std::int64_t sequences) {
  return training_flops_by_part(forward_flops(model), sequences);
}

TrainingFlops training_flops_by_part(const ForwardFlops& sum, std::int64_t sequences) {
  const double passes = 3 * static_cast<double>(sequences);
  return {.linears = passes * sum.linears, .attention = passes * sum.attention, .norms = passes * sum.norms};
}

TrainingFlops training_flops_by_part(const config::Model& m, const SampleLength& length,
                                     std::int64_t sequences, int tensor) {
  config::Run run;
  run.model = m;
  run.parallel.tensor_model_parallel_size = tensor;
  run.training.seq_length = length.sequences.front();
  run.training.decoder_seq_length = length.sequences.back();
  return training_flops_by_part(ModelCost(run), sequences);
}

double training_flops(const config::Model& model, const SampleLength& length, std::int64_t sequences,
                      int tensor) {
  return training_flops_by_part(model, length, sequences, tensor).total();
}

}  // namespace colonnade::cost
