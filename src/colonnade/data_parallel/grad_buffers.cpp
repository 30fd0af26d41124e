// See grad_buffers.h.
#include "colonnade/data_parallel/grad_buffers.h"

#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/data_parallel/partial_sums.h"

namespace colonnade::data_parallel {
namespace {

constexpr std::int64_t kStartAlignment = 64;
constexpr std::int64_t kBucketAlignment = 128;

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

GradBuffers::GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, tensor::Parameter* tied,
                         Groups groups, Options options)
    : groups_(std::move(groups)), options_(options), tied_(tied), armed_(chunks.size(), false) {
  lay_out(chunks);
  if (entries_.empty()) return;
  move_into_buffers();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (tensor::Parameter* parameter : buckets_[b].parameters) {
      bucket_of_[parameter] = b;
      parameter->on_grad_ready = [this, b] { on_ready(b); };
    }
  start_step();
}

bool GradBuffers::needs_further_sums(const tensor::Parameter& parameter) const {
  return &parameter == tied_ || is_partial(parameter, groups_.tensor);
}

void GradBuffers::lay_out(const std::vector<std::vector<tensor::Parameter*>>& chunks) {
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (const bool deferred : {false, true}) {
      buckets_.push_back({.chunk = static_cast<int>(c), .deferred = deferred, .begin = total_});
      for (auto p = chunks[c].rbegin(); p != chunks[c].rend(); ++p) {
        if (needs_further_sums(**p) != deferred) continue;
        // Tied embeddings lie alone in a bucket, so that both stages cut it in the same places.
        if (*p == tied_) close_bucket();
        place(*p);
        if (*p == tied_ || total_ - buckets_.back().begin >= options_.bucket_elements) close_bucket();
      }
      close_bucket();
      buckets_.pop_back();
    }
  }
}

void GradBuffers::place(tensor::Parameter* parameter) {
  total_ = round_up(total_, kStartAlignment);
  entries_.push_back({parameter, total_});
  total_ += parameter->value.numel();
  buckets_.back().parameters.push_back(parameter);
}

/// Ends the open bucket, unless it is empty, and opens the next of the same kind.
void GradBuffers::close_bucket() {
  Bucket& open = buckets_.back();
  if (open.parameters.empty()) return;
  const std::int64_t size = groups_.data.size();
  total_ = open.begin + round_up(total_ - open.begin, std::lcm(size, kBucketAlignment));
  open.end = total_;
  open.name = fmt::format("gradient bucket {} ({} ... {})", buckets_.size() - 1,
                          open.parameters.front()->spec.name, open.parameters.back()->spec.name);
  const std::int64_t part = (open.end - open.begin) / size;
  if (distributed())
    owned_.push_back(
        {open.begin + part * groups_.data.rank(), open.begin + part * (groups_.data.rank() + 1)});
  else
    owned_.push_back({open.begin, open.end});
  buckets_.push_back({.chunk = open.chunk, .deferred = open.deferred, .begin = total_});
}

void GradBuffers::move_into_buffers() {
  const at::Tensor& first = entries_.front().parameter->value;
  const auto grad_type = first.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  params_ = at::zeros({total_}, first.options());
  grads_ = at::zeros({total_}, first.options().dtype(grad_type));
  for (const Entry& e : entries_) {
    COL_CHECK(e.parameter->value.scalar_type() == first.scalar_type(),
              "parameter {}: all parameters of a rank share one dtype; got {} and {}", e.parameter->spec.name,
              c10::toString(e.parameter->value.scalar_type()), c10::toString(first.scalar_type()));
    const std::int64_t n = e.parameter->value.numel();
    e.parameter->move_value_to(params_.narrow(0, e.begin, n));
    e.parameter->move_grad_to(grads_.narrow(0, e.begin, n));
  }
}

void GradBuffers::start_step() {
  for (const Entry& e : entries_) e.parameter->zero_grad();
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int>(bucket.parameters.size());
    bucket.launched = false;
  }
  armed_.assign(armed_.size(), false);
}

void GradBuffers::arm(int chunk) { armed_[static_cast<std::size_t>(chunk)] = true; }

void GradBuffers::on_ready(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (bucket.deferred || !options_.overlap_grad_reduce || !armed_[static_cast<std::size_t>(bucket.chunk)])
    return;
  if (--bucket.missing == 0) launch(bucket);
}

void GradBuffers::launch(Bucket& bucket) {
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->grad_to_add_to();  // an unused parameter: its gradient is zero
  bucket.launched = true;
  at::Tensor all = grads_.narrow(0, bucket.begin, bucket.end - bucket.begin);
  if (!distributed()) {
    bucket.reduced = groups_.data.all_reduce(all, bucket.name);
    return;
  }
  const std::int64_t part = all.numel() / groups_.data.size();
  bucket.reduced =
      groups_.data.reduce_scatter(all.narrow(0, part * groups_.data.rank(), part), all, bucket.name);
}

void GradBuffers::sum_partial_gradients() {
  for (Bucket& bucket : buckets_) {
    if (!bucket.deferred) continue;
    for (tensor::Parameter* parameter : bucket.parameters) {
      parameter->has_grad() ? void() : void(parameter->grad_to_add_to());
      sum_partial(*parameter, groups_.tensor);
      if (parameter == tied_) groups_.embedding.all_reduce(parameter->main_grad, "tied embeddings").wait();
    }
  }
}

void GradBuffers::finish() {
  sum_partial_gradients();
  for (Bucket& bucket : buckets_)
    if (!bucket.launched) launch(bucket);
  for (Bucket& bucket : buckets_) bucket.reduced.wait();
}

void GradBuffers::gather_params() {
  if (!distributed()) return;
  // First needed, first gathered: the buffers are in backward order.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    at::Tensor all = params_.narrow(0, bucket->begin, bucket->end - bucket->begin);
    const std::int64_t part = all.numel() / groups_.data.size();
    bucket->gathered =
        groups_.data.all_gather(all, all.narrow(0, part * groups_.data.rank(), part), bucket->name);
    if (!options_.overlap_param_gather) bucket->gathered.wait();
  }
}

void GradBuffers::wait_for(const std::vector<tensor::Parameter*>& parameters) {
  for (const tensor::Parameter* parameter : parameters) {
    const auto found = bucket_of_.find(parameter);
    if (found != bucket_of_.end()) buckets_[found->second].gathered.wait();
  }
}

}  // namespace colonnade::data_parallel
