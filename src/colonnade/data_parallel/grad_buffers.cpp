// See grad_buffers.h.
#include "colonnade/data_parallel/grad_buffers.h"

#include "colonnade/base/error.h"
#include "colonnade/data_parallel/partial_sums.h"

namespace colonnade::data_parallel {
namespace {

using plan::FurtherSum;

plan::FlatLayout lay_out(const std::vector<std::vector<tensor::Parameter*>>& chunks,
                         const tensor::Parameter* tied, const Groups& groups, std::int64_t bucket_elements) {
  std::vector<std::vector<plan::FlatParam>> flat(chunks.size());
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (const tensor::Parameter* p : chunks[c])
      flat[c].push_back(
          {p->value.numel(),
           p == tied ? FurtherSum::kTied : plan::further_sum(p->spec, p->shard, groups.tensor.size()),
           p->spec.family});
  return plan::lay_out(flat, bucket_elements, {groups.data.size(), groups.expert_data.size()});
}

}  // namespace

GradBuffers::GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, tensor::Parameter* tied,
                         Groups groups, Options options)
    : groups_(std::move(groups)), options_(options), armed_(chunks.size(), false) {
  const plan::FlatLayout layout = lay_out(chunks, tied, groups_, options_.bucket_elements);
  adopt(layout, chunks);
  move_into_buffers(layout.size);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (tensor::Parameter* parameter : buckets_[b].parameters) {
      bucket_of_[parameter] = b;
      parameter->on_grad_ready = [this, b] { on_ready(b); };
    }
  start_step();
}

void GradBuffers::adopt(const plan::FlatLayout& layout,
                        const std::vector<std::vector<tensor::Parameter*>>& chunks) {
  for (const plan::FlatEntry& e : layout.entries) entries_.push_back({chunks[e.chunk][e.index], e.begin});
  for (const plan::FlatBucket& place : layout.buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.place = place;
    for (std::size_t i = place.first; i < place.last; ++i) bucket.parameters.push_back(entries_[i].parameter);
    bucket.name = fmt::format("gradient bucket {} ({} ... {})", buckets_.size() - 1,
                              bucket.parameters.front()->spec.name, bucket.parameters.back()->spec.name);
    add_owned(place);
  }
}

void GradBuffers::add_owned(const plan::FlatBucket& place) {
  const comm::Group& replicas = groups_.replicas(place.family);
  const bool shared = distributed(place.family);
  const std::int64_t part = (place.end - place.begin) / (shared ? replicas.size() : 1);
  const std::int64_t begin = place.begin + (shared ? part * replicas.rank() : 0);
  owned_.push_back({begin, begin + part});
}

void GradBuffers::move_into_buffers(std::int64_t size) {
  params_ =
      at::zeros({size}, entries_.empty() ? options_.empty : entries_.front().parameter->value.options());
  const auto type = params_.scalar_type();
  grads_ = at::zeros({size}, params_.options().dtype(type == at::kDouble ? at::kDouble : at::kFloat));
  for (const Entry& e : entries_) {
    COL_CHECK(e.parameter->value.scalar_type() == type,
              "parameter {}: all parameters of a rank share one dtype; got {} and {}", e.parameter->spec.name,
              c10::toString(e.parameter->value.scalar_type()), c10::toString(type));
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
  if (!options_.overlap_grad_reduce || !armed_[static_cast<std::size_t>(bucket.place.chunk)]) return;
  if (--bucket.missing == 0) launch(bucket);
}

at::Tensor GradBuffers::stretch(const at::Tensor& buffer, const Bucket& bucket) const {
  return buffer.narrow(0, bucket.place.begin, bucket.place.end - bucket.place.begin);
}

void GradBuffers::launch(Bucket& bucket) {
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->grad_to_add_to();  // an unused parameter: its gradient is zero
  bucket.launched = true;
  const at::Tensor all = stretch(grads_, bucket);
  const comm::Group& replicas = groups_.replicas(bucket.place.family);
  if (!distributed(bucket.place.family)) {
    bucket.reduced = replicas.all_reduce(all, bucket.name);
    return;
  }
  const std::int64_t part = all.numel() / replicas.size();
  bucket.reduced = replicas.reduce_scatter(all.narrow(0, part * replicas.rank(), part), all, bucket.name);
}

/// What this rank needs of a bucket, over the axes beside the replicas. Those it is summed with need the
/// same stretch.
void GradBuffers::sum_further(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  const std::string name = bucket.name + " / partial";
  const Owned& owned = owned_[index];
  const at::Tensor needed = grads_.narrow(0, owned.begin, owned.end - owned.begin);
  switch (bucket.place.further) {
    case FurtherSum::kNone:
      return;
    case FurtherSum::kTensor:
      return groups_.tensor.all_reduce(needed, name).wait();
    case FurtherSum::kSharedRows:
      return sum_shared_rows(bucket.parameters, groups_.tensor, name);
    case FurtherSum::kTied:
      return groups_.embedding.all_reduce(needed, "tied embeddings").wait();
  }
}

void GradBuffers::finish() {
  for (Bucket& bucket : buckets_)
    if (!bucket.launched) launch(bucket);
  for (Bucket& bucket : buckets_) bucket.reduced.wait();
  for (std::size_t b = 0; b < buckets_.size(); ++b) sum_further(b);
}

void GradBuffers::gather_params() {
  // First needed, first gathered: the buffers are in backward order.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    if (!distributed(bucket->place.family)) continue;
    const comm::Group& replicas = groups_.replicas(bucket->place.family);
    const at::Tensor all = stretch(params_, *bucket);
    const std::int64_t part = all.numel() / replicas.size();
    bucket->gathered = replicas.all_gather(all, all.narrow(0, part * replicas.rank(), part), bucket->name);
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
