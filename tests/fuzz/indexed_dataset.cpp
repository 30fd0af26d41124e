// A .idx for a .bin of 4 KiB: opens it and reads every sequence.
#include "colonnade/data/indexed/indexed_dataset.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  if (size == 0) return 0;
  static const std::string bin = fuzz::file("data.bin", std::string(4096, '\1'));
  const bool multimodal = (data[0] & 1) != 0;
  fuzz::file("data.idx", fuzz::text_of(data + 1, size - 1));
  return fuzz::run([&] {
    const data::IndexedDataset set(bin.substr(0, bin.size() - 4), multimodal);
    for (std::int64_t i = 0; i < set.num_documents(); ++i) (void)set.document_start(i);
    for (std::int64_t i = 0; i < set.num_sequences(); ++i) {
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(set.length(i)));
      set.tokens(i, 0, tokens);
      if (multimodal) (void)set.mode(i);
    }
  });
}
