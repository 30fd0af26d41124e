// See block_recorder.h.
#include "colonnade/job/block_recorder.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/tensor/deferred_weight_grads.h"

namespace colonnade::job {
namespace {

std::int64_t bytes_now() { return static_cast<std::int64_t>(tensor::memory_use(at::kMeta).now); }
std::int64_t take_peak() { return static_cast<std::int64_t>(tensor::take_peak(at::kMeta)); }

/// Output of a forward pass whose graph is kept.
struct Graph {
  explicit Graph(const at::Tensor& y) : shape(y.sizes().vec()), options(y.options()) {
    if (!y.requires_grad()) return;
    edge = torch::autograd::impl::gradient_edge(y);
    // As within a stage, only the graph holds the gradient, and frees it after its use.
    y.register_hook([gradient = gradient](const at::Tensor&) { gradient->clear(); });
  }
  void backward() const {
    if (edge.function == nullptr) return;
    gradient->push_back(at::ones(shape, options));
    torch::autograd::Engine::get_default_engine().execute({edge}, *gradient, false, false, true);
  }

  torch::autograd::Edge edge;
  std::vector<std::int64_t> shape;
  at::TensorOptions options;
  std::shared_ptr<std::vector<at::Tensor>> gradient = std::make_shared<std::vector<at::Tensor>>();
};

/// Measures the passes of one block.
class Recorder {
 public:
  Recorder(Job& job, const BlockPass& pass, const tensor::Batch& batch,
           const std::vector<std::int64_t>& shape)
      : job_(job), pass_(pass), batch_(batch), shape_(shape) {}

  [[nodiscard]] Graph forward() const {
    return Graph(pass_(input(/*differentiable=*/true), {.batch = batch_}));
  }

  /// Peak of a forward pass that saves nothing.
  [[nodiscard]] std::int64_t evaluation() const {
    const at::NoGradGuard no_grad;
    const std::int64_t before = bytes_now();
    take_peak();
    pass_(input(/*differentiable=*/false), {.batch = batch_, .training = false});
    return take_peak() - before;
  }

  /// Passes with delayed weight gradients.
  void delayed(BlockRecord& record) const {
    const std::int64_t before = bytes_now();
    const std::vector<tensor::Parameter*> parameters = job_.parameters();
    tensor::DeferredWeightGrads pending;
    {
      const Graph graph = forward();
      const std::int64_t saved = bytes_now();
      take_peak();
      const tensor::DeferScope scope(parameters, pending);
      graph.backward();
      record.backward_input_peak = take_peak() - saved;
    }
    record.wgrad_saved = bytes_now() - before;
    pending.run(/*last=*/false);
    record.weight_gradients_peak = take_peak() - before - record.wgrad_saved;
  }

 private:
  [[nodiscard]] at::Tensor input(bool differentiable) const {
    if (shape_.empty()) return {};
    return at::zeros(shape_, job_.options()).requires_grad_(differentiable);
  }

  Job& job_;
  const BlockPass& pass_;
  const tensor::Batch& batch_;
  const std::vector<std::int64_t>& shape_;
};

/// Calls of the log from the first one on that `done` does not count yet.
std::vector<comm::LoggedCall> new_calls(const comm::CallLog& log, std::size_t& done) {
  std::vector<comm::LoggedCall> calls = log.calls();
  calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(done));
  done += calls.size();
  return calls;
}

}  // namespace

BlockRecord record_block(Job& job, comm::CallLog& log, const tensor::Batch& batch, const BlockPass& pass,
                         const std::vector<std::int64_t>& shape) {
  const Recorder recorder(job, pass, batch, shape);
  BlockRecord record;
  record.evaluation = recorder.evaluation();
  recorder.delayed(record);
  std::size_t done = log.calls().size();
  OpCounter operators;
  const std::int64_t before = bytes_now();
  take_peak();
  {
    const Graph graph = recorder.forward();
    record.output_shape = graph.shape;
    record.forward = operators.take();
    record.forward_calls = new_calls(log, done);
    const std::int64_t saved = bytes_now();
    record.saved = saved - before;
    record.forward_peak = take_peak() - saved;
    graph.backward();
    record.backward_peak = take_peak() - saved;
  }
  record.backward = operators.take();
  record.backward_calls = new_calls(log, done);
  return record;
}

}  // namespace colonnade::job
