// The figures that only a GPU can show, in groups of a few minutes each, so that a machine that is
// there for a short while can show some of them. Each group needs the CUDA device for itself, and
// lists what it cannot measure, with the reason.
#pragma once

#include <string>
#include <vector>

namespace outboard::bench {

// How large what a group measures is: whole, or small, which shows that all of it is reported and
// nothing else, on the tests' own driver. Names are those of the whole.
enum class GroupSize { kWhole, kSmall };

// The figures of a group, as scripts/bench names it; none: there is no such group. They are known
// before anything is measured, so that whoever ends a group can tell which it has not reported.
std::vector<std::string> GpuFigureNames(const std::string& group);

// Copies, streams of memory, launches, large products, the search.
void GpuDeviceGroup(GroupSize size = GroupSize::kWhole);
// Products and attention in the shapes of models.
void GpuShapesGroup(GroupSize size = GroupSize::kWhole);
// A step of MNIST, layers of ResNet-50, a decoded token.
void GpuProgramsGroup(GroupSize size = GroupSize::kWhole);
// Training steps of GPT-2 124M.
void GpuStepsGroup(GroupSize size = GroupSize::kWhole);
void GpuServiceGroup();   // what a step costs through gateway and worker, and first steps
void GpuTestsGroup();     // the tests on the device, and the PTX machine against it

}  // namespace outboard::bench
