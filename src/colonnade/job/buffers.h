// The gradient buffers of a rank, built from the settings and process groups of its run.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/pipeline/executor.h"

namespace colonnade::job {

/// Buffers of the trained parameters of `stages`, whose blocks notify them from now on. `device`: that of a
/// rank without parameters. Creates the process groups of all replicas and stages; collective.
std::unique_ptr<data_parallel::GradBuffers> make_buffers(const config::Run& run, comm::Communicators& ranks,
                                                         const std::vector<tensor::Stage*>& stages,
                                                         const config::Dtypes& dtypes,
                                                         const at::Device& device);

/// Executor callbacks that drive the gradient buffers.
pipeline::GradientEvents gradient_events(data_parallel::GradBuffers& buffers);

}  // namespace colonnade::job
