// A folder of torch.distributed.checkpoint: the first two bytes are the length of .metadata, which is
// followed by the segments.
#include <ATen/ATen.h>

#include <algorithm>

#include "colonnade/checkpoint/distributed.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8U, bytes.size());
  fuzz::file(".metadata", bytes.substr(0, length));
  fuzz::file("__0_0.distcp", bytes.substr(length));
  return fuzz::run([&] {
    const checkpoint::DistributedFolder folder = checkpoint::open_distributed(fuzz::folder());
    for (const auto& [name, tensor] : folder.tensors) {
      const auto most = static_cast<std::int64_t>(bytes.size());
      if (checkpoint::Box{{}, tensor.shape}.numel() > most) abort();
      const at::Tensor all = at::zeros(tensor.shape, at::TensorOptions().dtype(tensor.dtype));
      checkpoint::read_box(tensor, {name, tensor.shape, checkpoint::Sizes(tensor.shape.size(), 0), all});
    }
  });
}
