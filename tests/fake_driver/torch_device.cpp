// A CUDA device for torch that computes nothing: enough for autograd's thread of a device, whose tensors have no values.
// It counts whoever waits for it. Built by tests/frameworks/test_without_a_device.py, and loaded before torch is imported.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using namespace c10;

int waits = 0;
const Device device(DeviceType::CUDA, 0);
const Stream stream(Stream::DEFAULT, device);

struct Guard : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return device; }
  Device getDevice() const override { return device; }
  Stream getStream(Device) const noexcept override { return stream; }
  Stream exchangeStream(Stream) const noexcept override { return stream; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  void synchronizeStream(const Stream&) const override { waits++; }
  void synchronizeEvent(void*) const override { waits++; }
  void synchronizeDevice(const DeviceIndex) const override { waits++; }
};

struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
};

impl::DeviceGuardImplRegistrar guard(DeviceType::CUDA, new Guard());
// Before those of a build for CUDA, which has its own.
at::RegistererCUDAHooksRegistry hooks(
    "CUDAHooks",
    REGISTRY_PREFERRED,
    at::CUDAHooksRegistry(),
    at::RegistererCUDAHooksRegistry::DefaultCreator<Hooks>);

}  // namespace

extern "C" int device_waits() { return waits; }
