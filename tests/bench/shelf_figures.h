// Measures sessions on several nodes with links of a given rate or delay (tests/shelf/shelf.h).
// Reports as skipped what this machine cannot have, such as a rate that it does not reach.
#pragma once

namespace outboard::bench {

// allreduce_model_error_1gbit, _10gbit: how far the time of an ALLREDUCE of 16 MiB between two
// nodes is from what the choice of layouts predicts for such a link, of the measured time.
// dp2_efficiency_1gbit, _10gbit: tokens a second of the GPT on two nodes with a core each, twice
// the batch, over twice those of one. dp2_vs_two_sessions_1gbit: the same over those of two
// sessions at the same time, one on each node: what is left of it is this machine's, whose cores
// share caches and memory. dp2_vs_torch_ddp_1gbit: the time of PyTorch's step on such
// nodes over ours. overlap_hidden_ratio: of the time that the gradients take on the link at
// 1 Gbit/s, the part that does not lengthen the step. rtt20_round_trips: how many round trips of
// 20 ms the step is longer where the nodes are further apart by that.
void ShelfFigures();

}  // namespace outboard::bench
