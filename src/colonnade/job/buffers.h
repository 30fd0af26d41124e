// The gradient buffers of a rank: settings and groups as data_parallel takes them.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/pipeline/executor.h"

namespace colonnade::job {

/// Of the parameters of `stages`, which from now on tell them when blocks begin and end. `tensors`: type and
/// device of a rank without parameters. Makes the groups of all replicas and stages; collective.
std::unique_ptr<data_parallel::GradBuffers> make_buffers(const config::Run& run, comm::Communicators& ranks,
                                                         const std::vector<tensor::Stage*>& stages,
                                                         const at::TensorOptions& tensors);

/// What the executor tells the gradients' buffers.
pipeline::GradientEvents gradient_events(data_parallel::GradBuffers& buffers);

}  // namespace colonnade::job
