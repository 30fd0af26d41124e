// Upcycling: a model with routed MLPs starts from the weights of a dense one (--moe-use-upcycling).
// Source: Komatsuzaki et al. 2022; He et al. 2024 (granularity, scaling); Megatron's
// core/transformer/moe/upcycling_utils.py.
#pragma once

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/job/job.h"
#include "colonnade/job/model_settings.h"

namespace colonnade::job {

/// Whether `run` starts from the weights of `source` by upcycling: with the flag, and a dense `source`.
bool upcycles(const config::Run& run, const checkpoint::CheckpointReader& source);

/// Turns the model settings of `source` into those that the upcycled model has in common with it: without
/// routing settings, and with its FFN hidden size divided by the granularity. The settings of the checkpoint
/// of an upcycled run, which resumes, stay. Throws ConfigError for another source that is not dense, and for
/// an FFN hidden size that does not agree.
void adapt_to_upcycling(const config::Run& run, const checkpoint::CheckpointReader& source,
                        TextSettings& settings);

/// Lets a second start of an upcycled run resume: if --save holds checkpoints of one, --load becomes --save,
/// with a note, and options that choose the first checkpoint are reset. Megatron rejects a second start.
void resume_upcycled_run(config::Run& run);

/// Reads this rank's initial values from a dense checkpoint or Hugging Face folder, whatever layout wrote it.
/// The optimizer and the counters start from scratch. With E experts, FFN hidden sizes F (dense) and f
/// (expert), granularity G = F / f and k experts per token:
///
///     expert e       columns and rows e % G of G equal parts of the dense MLP (gate and up separately),
///                    times s^(1/3) if gated or with --squared-relu, else s^(1/2); the second bias is
///                    unscaled and full
///     s              G, or with --moe-router-pre-softmax E G / k
///     router         its initial values from the seed; G > 1: row e is the initial row e / G, so that tokens
///                    select the parts of one MLP together
///     other          the dense values; parameters that no dense model has, as of shared experts, keep their
///                    initial values
///
/// The job must have random initial values. Throws DataError and ConfigError as job::restore, and ConfigError
/// for a model of a program's own builder.
void upcycle(Job& job, const checkpoint::CheckpointReader& source);

}  // namespace colonnade::job
