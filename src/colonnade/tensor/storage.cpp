// See storage.h.
#include "colonnade/tensor/storage.h"

#include <utility>

namespace colonnade::tensor {

void release(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  impl->set_nbytes(0);
}

void restore(const c10::Storage& storage, const c10::Storage& source) {
  c10::StorageImpl* from = source.unsafeGetStorageImpl();
  c10::StorageImpl* to = storage.unsafeGetStorageImpl();
  to->set_nbytes(from->nbytes());
  to->set_data_ptr_noswap(std::move(from->_mutable_data_ptr_no_checks()));
  release(source);
}

}  // namespace colonnade::tensor
