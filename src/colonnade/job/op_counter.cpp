// See op_counter.h. Operators call others: matmuls and attention are counted where they are called last, the
// bytes of an operator that calls none of them at the outermost call.
#include "colonnade/job/op_counter.h"

#include <ATen/ATen.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace colonnade::job {
namespace {

OpCounts& counts() {
  static OpCounts all;
  return all;
}
int& depth() {
  static int calls = 0;
  return calls;
}

/// Tensors that an operator reads.
struct Call final : at::ObserverContext {
  std::set<const c10::StorageImpl*> storages;
  double bytes = 0;
  std::size_t matmuls = 0;  ///< counted before the call
  double attention = 0;     ///< the same
  bool is_outermost = false;
};

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& f) {
  if (value.isTensor() && value.toTensor().defined()) f(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& x : value.toTensorVector()) f(x);
}

void add_matmul(const at::Tensor& a, const at::Tensor& b) {
  const auto rows = static_cast<double>(a.size(-2)), inner = static_cast<double>(a.size(-1));
  counts().matmuls.push_back({.name = "measured",
                              .m = rows,
                              .n = static_cast<double>(b.size(-1)),
                              .k = inner,
                              .sharding = cost::LinearSharding::kReplicated,
                              .count = static_cast<double>(a.numel()) / (rows * inner)});
}

double score_flops(const at::Tensor& q_bhsd, const at::Tensor& k_bhtd) {
  return 4.0 * static_cast<double>(q_bhsd.numel()) * static_cast<double>(k_bhtd.size(2));
}

void add_products(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto tensor = [&](std::size_t i) { return call.inputs()[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") add_matmul(tensor(0), tensor(1));
  if (name == "mkldnn::_linear_pointwise")  // x w^T
    add_matmul(tensor(0).reshape({-1, tensor(0).size(-1)}), tensor(1).t());
  if (name == "aten::addmm" || name == "aten::addmm_") add_matmul(tensor(1), tensor(2));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu")
    counts().attention_forward += score_flops(tensor(0), tensor(1));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    counts().attention_backward += score_flops(tensor(1), tensor(2));
}

double attention() { return counts().attention_forward + counts().attention_backward; }

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  auto context = std::make_unique<Call>();
  context->is_outermost = depth()++ == 0;
  context->matmuls = counts().matmuls.size();
  context->attention = attention();
  for (const c10::IValue& value : call.inputs())
    for_each_tensor(value, [&](const at::Tensor& x) {
      context->bytes += static_cast<double>(x.nbytes());
      context->storages.insert(x.storage().unsafeGetStorageImpl());
    });
  add_products(call);
  return context;
}

/// Views and allocations move no bytes.
void end(const at::RecordFunction& call, at::ObserverContext* observed) {
  --depth();
  const auto& context = static_cast<const Call&>(*observed);
  const bool multiplies = counts().matmuls.size() > context.matmuls || attention() > context.attention;
  if (!context.is_outermost || multiplies || std::string_view(call.name()).starts_with("aten::empty")) return;
  double written = 0;
  bool computes = std::string_view(call.name()).ends_with('_');  // in place
  for (const c10::IValue& value : call.outputs())
    for_each_tensor(value, [&](const at::Tensor& x) {
      written += static_cast<double>(x.nbytes());
      computes = computes || !context.storages.contains(x.storage().unsafeGetStorageImpl());
    });
  if (!computes) return;
  counts().bytes += context.bytes + written;
  counts().kernels += 1;
}

}  // namespace

double OpCounts::linears() const {
  double sum = 0;
  for (const cost::Matmul& matmul : matmuls) sum += 2 * matmul.m * matmul.n * matmul.k * matmul.count;
  return sum;
}

OpCounter::OpCounter()
    : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}))) {
  counts() = {};
  depth() = 0;
}

OpCounter::~OpCounter() { at::removeCallback(handle_); }

OpCounts OpCounter::take() { return std::exchange(counts(), OpCounts()); }

}  // namespace colonnade::job
