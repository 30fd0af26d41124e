// See executor.h. Receives for the next compute action are posted before the current one, so that messages
// overlap with compute. Between forward and backward of a (chunk, micro-batch) the input and the autograd
// edge of the output are kept; the output is released once it is sent. Between input and weight gradients the
// deferred weight-gradient GEMMs are kept.
#include "colonnade/pipeline/executor.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <set>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/comm/trace_range.h"
#include "colonnade/schedule/releases.h"
#include "colonnade/tensor/backward.h"
#include "colonnade/tensor/deferred_weight_grads.h"

namespace colonnade::pipeline {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::is_transfer;
using schedule::runs_in_forward_only;
using schedule::starts_pair;

struct Key {
  int chunk;
  int microbatch;
  friend auto operator<=>(const Key&, const Key&) = default;
};

/// Message tags. All micro-batches and chunks share a tag: messages between two ranks arrive in send order,
/// which schedule::check ensures to be the receive order.
constexpr int kActivations = 0;
constexpr int kGradients = 1;

/// Point-to-point channel: one direction of activations or gradients.
struct Channel {
  int from, to, tag;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

/// All channels of a placement, ordered by pairs of ranks. Every rank uses this order, so pairwise
/// connections cannot deadlock, and disjoint pairs connect concurrently.
std::vector<Channel> channels_of(const schedule::Placement& placement) {
  std::set<std::tuple<bool, int, int, Channel>> ordered;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (!placement.crosses(stage)) continue;
    const int here = placement.location(stage).rank, there = placement.location(stage + 1).rank;
    const auto [low, high] = std::minmax(here, there);
    ordered.emplace(low % 2 != 0, low, high, Channel{here, there, kActivations});
    ordered.emplace(low % 2 != 0, low, high, Channel{there, here, kGradients});
  }
  std::vector<Channel> channels;
  for (const auto& entry : ordered) channels.push_back(std::get<Channel>(entry));
  return channels;
}

/// Runs `pass` and adds its seconds to `total`, unless that is null. On CUDA the times of kernels count.
template <typename PassFunction>
void timed(double* total, at::Device device, const PassFunction& pass) {
  if (total == nullptr) return pass();
  const auto synchronize = [&] {
    if (!device.is_cuda()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  };
  synchronize();
  const std::int64_t begin_ns = monotonic_ns();
  pass();
  synchronize();
  *total += static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
}

/// State of a micro-batch between its forward and its backward pass.
struct Live {
  at::Tensor input;                 ///< leaf; undefined on the first stage
  torch::autograd::Edge output;     ///< entry of the output gradient into the graph
  at::Tensor seed;                  ///< initial gradient, on the last stage
  std::vector<std::int64_t> shape;  ///< output shape, on other stages
};

/// Execution of this rank's program.
class Run {
 public:
  Run(const schedule::Schedule& schedule, const std::vector<tensor::Stage*>& stages, const comm::Group& pp,
      const Activation& activation, const at::TensorOptions& options, const Steps& steps,
      const std::vector<tensor::Parameter*>& parameters,
      const std::vector<std::vector<std::size_t>>& releases)
      : schedule_(schedule),
        stages_(stages),
        pp_(pp),
        activation_(activation),
        options_(options),
        steps_(steps),
        parameters_(parameters),
        releases_(releases) {}

  void forward(const Action& a, tensor::Output output,
               const std::function<void(int, const at::Tensor&)>& sink);
  /// Full backward pass, or with kBackwardInput the part before the deferred weight gradients.
  void backward(const Action& a);
  /// A forward and a backward pass that take turns.
  void pair(const Action& forward_action, const Action& backward_action, Turns& turns);
  /// Deferred weight gradients; `last`: the last ones of this chunk in this run.
  void weights(const Action& a, bool last, const GradientEvents& events);
  /// Sends or receives; `index` is the position of `a` in the program.
  void transfer(const Action& a, std::size_t index);
  /// Posts the receive at position `index` of the program, so that its message overlaps with compute.
  void post_receive(const Action& a, std::size_t index);
  void finish();

  bool training = false;
  double grad_scale = 1;
  double block_weight = 1;
  std::size_t max_in_flight = 0;  ///< limit of in-flight sends; 0: none
  Result result;

 private:
  [[nodiscard]] int stage_number(int chunk) const { return schedule_.placement.stage(pp_.rank(), chunk); }
  [[nodiscard]] int rank_of(int stage) const { return schedule_.placement.location(stage).rank; }
  [[nodiscard]] int chunk_of(int stage) const { return schedule_.placement.location(stage).chunk; }
  at::Tensor take(std::map<Key, at::Tensor>& from, const Key& key, const char* what);
  void pass_on(const Key& key, const at::Tensor& output);
  /// Received tensor; blocks until it has arrived.
  at::Tensor received(const Action& a, std::size_t index);
  [[nodiscard]] std::string name_of(const Action& a, const char* kind) const {
    return fmt::format("pipeline / {} / stage {} micro-batch {}", kind, stage_number(a.chunk), a.microbatch);
  }
  /// Name of a pass in traces: "forward micro-batch 2 stage 1".
  [[nodiscard]] std::string range_name(const Action& a, const char* pass) const {
    return fmt::format("{} micro-batch {} stage {}", pass, a.microbatch, stage_number(a.chunk));
  }
  /// State of a micro-batch between forward and backward.
  const Live& live(const Key& key);
  const tensor::Batch& batch(int microbatch);
  /// Releases the batch after the last chunk of this rank; the graph keeps what backward needs.
  void release_batch(const Key& key);

  const schedule::Schedule& schedule_;
  const std::vector<tensor::Stage*>& stages_;
  const comm::Group& pp_;
  const Activation& activation_;
  const at::TensorOptions& options_;
  const Steps& steps_;
  const std::vector<tensor::Parameter*>& parameters_;
  const std::vector<std::vector<std::size_t>>& releases_;

  std::map<int, tensor::Batch> batches_;
  std::map<Key, at::Tensor> inputs_, outputs_, output_grads_, input_grads_;
  std::map<Key, Live> live_;
  std::map<Key, tensor::DeferredWeightGrads> deferred_;
  struct Arriving {
    at::Tensor tensor;
    comm::Work work;
  };
  std::map<std::size_t, Arriving> arriving_;  ///< by position in the program
  std::map<std::size_t, comm::Work> sent_;    ///< by position in the program
};

const tensor::Batch& Run::batch(int microbatch) {
  const auto found = batches_.find(microbatch);
  if (found != batches_.end()) return found->second;
  return batches_.emplace(microbatch, steps_.batch(microbatch).to(options_.device())).first->second;
}

void Run::release_batch(const Key& key) {
  if (key.chunk + 1 == schedule_.chunks) batches_.erase(key.microbatch);
}

at::Tensor Run::take(std::map<Key, at::Tensor>& from, const Key& key, const char* what) {
  const auto found = from.find(key);
  COL_CHECK(found != from.end(),
            "pipeline schedule must produce {} of chunk {}, micro-batch {} before its use; got none; fix the "
            "schedule",
            what, key.chunk, key.microbatch);
  at::Tensor tensor = std::move(found->second);
  from.erase(found);
  return tensor;
}

/// Stores the output for its send, or as input of the next virtual stage if that is on this rank.
void Run::pass_on(const Key& key, const at::Tensor& output) {
  const int stage = stage_number(key.chunk);
  if (!schedule_.placement.crosses(stage))
    inputs_[{chunk_of(stage + 1), key.microbatch}] = output.detach();
  else
    outputs_[key] = output;
}

void Run::forward(const Action& a, tensor::Output output,
                  const std::function<void(int, const at::Tensor&)>& sink) {
  const comm::TraceRange range([&] { return range_name(a, "forward"); });
  tensor::Stage& stage = *stages_[static_cast<std::size_t>(a.chunk)];
  const Key key{a.chunk, a.microbatch};
  at::Tensor x;
  if (!stage.first) {
    x = take(inputs_, key, "the input");
    if (training) x.requires_grad_();  // a leaf, where backward leaves the gradient to send
  }
  const tensor::Pass pass{.batch = batch(a.microbatch),
                          .training = training,
                          .output = output,
                          .grad_scale = training ? grad_scale * block_weight : 0,
                          .report = &result.report,
                          .routing = steps_.routing ? steps_.routing(a.microbatch) : nullptr};
  const at::Tensor y = steps_.forward ? steps_.forward(stage, x, pass) : stage.forward(x, pass);
  if (!stage.last) {
    // Detached: backward needs the edge below, not the output, whose memory is freed once it is sent.
    pass_on(key, y.detach().contiguous());
    if (training) live_[key] = {x, torch::autograd::impl::gradient_edge(y), {}, y.sizes().vec()};
    return release_batch(key);
  }
  if (sink) {
    release_batch(key);
    return sink(a.microbatch, y);
  }
  const Loss loss = steps_.loss(y, pass.batch);
  for (const auto& [name, sums] : loss.report) tensor::add(result.report.metric_sums, name, sums);
  if (training)
    live_[key] = {x,
                  torch::autograd::impl::gradient_edge(loss.value),
                  at::full_like(loss.value.detach(), grad_scale),
                  {}};
  release_batch(key);
}

const Live& Run::live(const Key& key) {
  const auto found = live_.find(key);
  COL_CHECK(
      found != live_.end(),
      "pipeline schedule must run backward of chunk {}, micro-batch {} after its forward; got no forward; "
      "fix the schedule",
      key.chunk, key.microbatch);
  return found->second;
}

void Run::backward(const Action& a) {
  const comm::TraceRange range([&] {
    return range_name(a, a.kind == ActionKind::kBackwardInput ? "backward of inputs" : "backward");
  });
  const Key key{a.chunk, a.microbatch};
  Live live = this->live(key);
  live_.erase(key);
  // The last stage starts from its loss, the others from a gradient that an earlier action received.
  const bool last = stages_[static_cast<std::size_t>(a.chunk)]->last;
  at::Tensor grad = last ? std::move(live.seed) : take(output_grads_, key, "the gradient of the output");
  {
    // With B and W apart, weight-gradient GEMMs of this pass are recorded for weights() instead of run.
    std::optional<tensor::DeferScope> scope;
    if (a.kind == ActionKind::kBackwardInput) scope.emplace(parameters_, deferred_[key]);
    tensor::backward(live.output, std::move(grad));
  }
  if (!live.input.defined()) return;  // the first stage sends no gradient
  at::Tensor grad_input = tensor::take_grad(live.input);
  COL_CHECK(
      grad_input.defined(),
      "pipeline output of chunk {} must depend on its input; got no input gradient; use the input in a block",
      a.chunk);
  // Kept for its send, or as output gradient of the previous virtual stage if that is on this rank.
  const int before = stage_number(a.chunk) - 1;
  if (!schedule_.placement.crosses(before))
    output_grads_[{chunk_of(before), a.microbatch}] = std::move(grad_input);
  else
    input_grads_[key] = grad_input.contiguous();
}

/// The backward pass starts, on another thread with the state of this one: autograd modes, number of threads
/// of parallel regions, device and stream, progress page. Both passes use one device stream, so kernels run
/// in the order of the turns.
void Run::pair(const Action& forward_action, const Action& backward_action, Turns& turns) {
  const at::ThreadLocalState state;
  Progress& page = progress();
  const at::Device device = options_.device();
  std::optional<c10::Stream> stream;
  if (device.is_cuda()) stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  turns.run(
      [&] {
        at::init_num_threads();
        const at::ThreadLocalStateGuard same_state(state);
        const ProgressScope same_page(page);
        c10::OptionalStreamGuard same_stream;
        if (stream) same_stream.reset_stream(*stream);
        backward(backward_action);
      },
      [&] { forward(forward_action, tensor::Output::kLoss, {}); });
}

void Run::weights(const Action& a, bool last, const GradientEvents& events) {
  const comm::TraceRange range([&] { return range_name(a, "backward of weights"); });
  const auto found = deferred_.find({a.chunk, a.microbatch});
  COL_CHECK(found != deferred_.end(),
            "pipeline schedule must run weight gradients of chunk {}, micro-batch {} after the input "
            "gradient; got none; fix the schedule",
            a.chunk, a.microbatch);
  if (events.before_weights) events.before_weights();
  found->second.run(last, events.before_product);
  deferred_.erase(found);
}

void Run::post_receive(const Action& a, std::size_t index) {
  if (arriving_.contains(index)) return;  // posted before an earlier compute action
  const int stage = stage_number(a.chunk);
  Arriving arriving;
  if (a.kind == ActionKind::kRecvActivation) {
    // The batch gives the shape: no message carries one.
    arriving.tensor = at::empty(activation_(batch(a.microbatch), a.chunk, training), options_);
    arriving.work =
        pp_.recv(arriving.tensor, rank_of(stage - 1), kActivations, name_of(a, "receive activation"));
  } else {
    // Of the shape of the output, so it can be posted only after the forward pass.
    arriving.tensor = at::empty(live({a.chunk, a.microbatch}).shape, options_);
    arriving.work = pp_.recv(arriving.tensor, rank_of(stage + 1), kGradients, name_of(a, "receive gradient"));
  }
  arriving_.emplace(index, std::move(arriving));
}

at::Tensor Run::received(const Action& a, std::size_t index) {
  post_receive(a, index);
  Arriving arriving = std::move(arriving_.at(index));
  arriving_.erase(index);
  arriving.work.wait();  // the compute action that follows reads the tensor
  return std::move(arriving.tensor);
}

void Run::transfer(const Action& a, std::size_t index) {
  const Key key{a.chunk, a.microbatch};
  const int stage = stage_number(a.chunk);
  switch (a.kind) {
    case ActionKind::kSendActivation:
      // Forward-only runs receive no gradients that prove arrival, so the oldest send is awaited instead.
      for (; max_in_flight > 0 && sent_.size() >= max_in_flight; sent_.erase(sent_.begin()))
        sent_.begin()->second.wait();
      // Not awaited: compute goes on, and `sent_` holds the tensor until its memory may be reused.
      sent_[index] = pp_.send(take(outputs_, key, "the output"), rank_of(stage + 1), kActivations,
                              name_of(a, "send activation"));
      break;
    case ActionKind::kRecvActivation:
      inputs_[key] = received(a, index);
      break;
    case ActionKind::kSendGradient:
      sent_[index] = pp_.send(take(input_grads_, key, "the gradient"), rank_of(stage - 1), kGradients,
                              name_of(a, "send gradient"));
      break;
    case ActionKind::kRecvGradient:
      output_grads_[key] = received(a, index);
      break;
    default:
      break;
  }
  // The peer sent this message after it had received those: their Work is done, and their memory is freed.
  for (const std::size_t arrived : releases_[index]) sent_.erase(arrived);
}

void Run::finish() {
  // Sends that no later message of the peer confirmed.
  for (auto& [index, work] : sent_) work.wait();
}

}  // namespace

Executor::Executor(schedule::Schedule schedule, std::vector<tensor::Stage*> stages, comm::Group pp,
                   Activation activation, at::TensorOptions options, std::shared_ptr<Turns> turns)
    : stages_(std::move(stages)),
      pp_(std::move(pp)),
      activation_(std::move(activation)),
      options_(options),
      turns_(std::move(turns)) {
  for (const tensor::Stage* stage : stages_) {
    const auto own = stage->parameters();
    parameters_.insert(parameters_.end(), own.begin(), own.end());
  }
  own_ = plan(std::make_shared<const schedule::Schedule>(std::move(schedule)));
}

std::shared_ptr<const Executor::Plan> Executor::plan(
    std::shared_ptr<const schedule::Schedule> schedule) const {
  COL_CHECK(schedule->ranks == pp_.size(), "pipeline group must have the {} ranks of the schedule; got {}",
            schedule->ranks, pp_.size());
  COL_CHECK(static_cast<int>(stages_.size()) == schedule->chunks,
            "pipeline rank must have the {} stages of the schedule; got "
            "{}",
            schedule->chunks, stages_.size());
  const schedule::Program& program = schedule->programs[static_cast<std::size_t>(pp_.rank())];
  Plan plan{.schedule = {},
            .releases = schedule::releases(*schedule, pp_.rank()),
            .overlapped = schedule::overlapped_receives(program),
            .overlapped_forward_only = schedule::overlapped_receives(program, /*forward_only=*/true)};
  plan.schedule = std::move(schedule);
  return std::make_shared<const Plan>(std::move(plan));
}

std::shared_ptr<const Executor::Plan> Executor::plan_of(const Steps& steps) {
  if (!steps.schedule) return own_;
  if (!latest_ || latest_->schedule != steps.schedule) {
    latest_ = plan(steps.schedule);
    latest_evaluation_send_window_.reset();
  }
  return latest_;
}

std::size_t Executor::evaluation_send_window(const Plan& plan) {
  auto& known = &plan == own_.get() ? own_evaluation_send_window_ : latest_evaluation_send_window_;
  if (!known) known = schedule::evaluation_send_window(*plan.schedule);
  return *known;
}

void Executor::warm_up_p2p() const {
  for (const auto& [from, to, tag] : channels_of(schedule().placement)) {
    if (pp_.rank() != from && pp_.rank() != to) continue;
    at::Tensor token = at::zeros({1}, options_);
    if (pp_.rank() == from)
      pp_.send(token, to, tag, "pipeline / warm up p2p").wait();
    else
      pp_.recv(token, from, tag, "pipeline / warm up p2p").wait();
  }
}

Result Executor::train(const Steps& steps, double grad_scale, const GradientEvents& events,
                       double block_weight) {
  const auto plan = plan_of(steps);
  const schedule::Schedule& schedule = *plan->schedule;
  Run run(schedule, stages_, pp_, activation_, options_, steps, parameters_, plan->releases);
  run.training = true;
  run.grad_scale = grad_scale;
  run.block_weight = block_weight;
  std::vector<int> passes_left(stages_.size(), schedule.microbatches), weights_left = passes_left;
  const schedule::Program& program = schedule.programs[static_cast<std::size_t>(pp_.rank())];
  const auto start = [&](std::size_t i) {
    const Action& a = program[i];
    const auto chunk = static_cast<std::size_t>(a.chunk);
    for (const std::size_t receive : plan->overlapped[i]) run.post_receive(program[receive], receive);
    // Before the pass, so that its gradients can be reduced as soon as they are complete.
    if (computes_input_grad(a.kind) && --passes_left[chunk] == 0 && events.before_last_backward)
      events.before_last_backward(a.chunk);
    if (completes_backward(a.kind)) --weights_left[chunk];
  };
  for (std::size_t i = 0; i < program.size(); ++i) {
    progress().heartbeat();
    const Action& a = program[i];
    const auto chunk = static_cast<std::size_t>(a.chunk);
    // The program orders receive, compute and send; only receives start earlier than their action.
    if (is_transfer(a.kind)) {
      run.transfer(a, i);
      continue;
    }
    start(i);
    const bool pairs = turns_ && starts_pair(schedule, program, i);
    if (pairs) start(++i);
    // The time of a pair counts as that of its backward pass.
    const bool is_forward = a.kind == ActionKind::kForward && !pairs;
    timed(times_passes_ ? &(is_forward ? run.result.forward_s : run.result.backward_s) : nullptr,
          options_.device(), [&] {
            if (pairs)
              run.pair(a, program[i], *turns_);
            else if (is_forward)
              run.forward(a, tensor::Output::kLoss, {});
            else if (a.kind == ActionKind::kBackwardWeight)
              run.weights(a, /*last=*/weights_left[chunk] == 0, events);
            else
              run.backward(a);
          });
  }
  run.finish();
  return std::move(run.result);
}

Result Executor::evaluate(const Steps& steps, tensor::Output output,
                          const std::function<void(int microbatch, const at::Tensor& output)>& sink) {
  const at::NoGradGuard no_grad;
  const auto plan = plan_of(steps);
  const schedule::Schedule& schedule = *plan->schedule;
  Run run(schedule, stages_, pp_, activation_, options_, steps, parameters_, plan->releases);
  run.max_in_flight = evaluation_send_window(*plan);
  const schedule::Program& program = schedule.programs[static_cast<std::size_t>(pp_.rank())];
  for (std::size_t i = 0; i < program.size(); ++i) {
    progress().heartbeat();
    const Action& a = program[i];
    if (!runs_in_forward_only(a.kind)) continue;
    if (is_transfer(a.kind)) {
      run.transfer(a, i);
      continue;
    }
    for (const std::size_t receive : plan->overlapped_forward_only[i])
      run.post_receive(program[receive], receive);
    run.forward(a, output, sink);
  }
  run.finish();
  return std::move(run.result);
}

}  // namespace colonnade::pipeline
