// Parameters and their gradients in few flat buffers, so that whatever works on all of them
// (zeroing, clipping, the optimizer, reduction, averaging) walks long ranges instead of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/weights.h"

namespace transnormer {

// The place of one parameter, in elements of its buffer.
struct FlatRange {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> sizes;  // of the parameter

  // The part of a tensor laid out as the buffer is, in the parameter's shape; it shares its memory.
  [[nodiscard]] at::Tensor view_of(const at::Tensor& flat) const;
};

// All parameters of one device, type and kind. Where no parameter lies, both tensors are zero, and
// whatever changes them leaves zeros there.
struct FlatBuffer {
  at::Tensor values;                   // [elements]
  at::Tensor gradients = {};           // [elements]
  std::vector<FlatRange> ranges = {};  // by rising offset
  std::size_t kind = 0;
};

class FlatParameters {
 public:
  // A number for parameters that need buffers of their own; the same for those of one storage.
  using KindOf = std::function<std::size_t(const NamedTensor&)>;

  // Moves the memory of the trainable parameters into flat buffers, one storage at a time, so that
  // every tensor that shares a storage follows: parameters, their views, and the joint of several
  // that lie one behind the other (model/linear.h, LinearGroup). Each storage begins at a multiple
  // of 64 bytes, and its parameters stay side by side. From here on every parameter has a gradient,
  // a view of the flat one: zero, or what it was. Tensors that are not trainable stay where they
  // are. Of several FlatParameters of one model the last made holds its memory.
  // Throws std::logic_error where parameters do not fill their storage without gap or overlap, or
  // are of several kinds there. `kind_of`: all of one kind unless told.
  explicit FlatParameters(const std::vector<NamedTensor>& tensors, const KindOf& kind_of = {});

  // The trainable ones of those given, in their order.
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<FlatBuffer>& buffers() const { return buffers_; }
  // The gradients of the parameters in their order, and those of all in one piece a buffer.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;
  [[nodiscard]] std::vector<at::Tensor> flat_gradients() const;

  // For each parameter, in their order, its part of tensors laid out as the buffers are, one a
  // buffer.
  [[nodiscard]] std::vector<at::Tensor> views_of(const std::vector<at::Tensor>& flat) const;

  // Numbers of a parameter's buffer, and of its range there.
  struct Place {
    std::size_t buffer;
    std::size_t range;
  };
  [[nodiscard]] Place place_of(std::size_t parameter) const { return places_[parameter]; }

 private:
  // Gives the parameters of one storage, by their numbers in the order of their memory, the next
  // place in their buffer. `elements`: of each buffer, so far.
  void place(const std::vector<std::size_t>& joint, const KindOf& kind_of,
             std::vector<std::int64_t>& elements);
  void make_gradients();

  std::vector<NamedTensor> parameters_;
  std::vector<FlatBuffer> buffers_;
  std::vector<Place> places_;  // of each parameter
};

}  // namespace transnormer
