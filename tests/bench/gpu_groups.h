// The figures that only a GPU can show, in groups of a few minutes each, so that a machine that is
// there for a short while can show some of them. Each group needs the CUDA device for itself, and
// lists what it cannot measure, with the reason.
#pragma once

namespace outboard::bench {

void GpuDeviceGroup();    // copies, streams of memory, launches, large products, the search
void GpuShapesGroup();    // products and attention in the shapes of models
void GpuProgramsGroup();  // a step of MNIST, layers of ResNet-50, a decoded token
void GpuStepsGroup();     // training steps of GPT-2 124M
void GpuServiceGroup();   // what a step costs through gateway and worker, and first steps
void GpuTestsGroup();     // the tests on the device, and the PTX machine against it

}  // namespace outboard::bench
