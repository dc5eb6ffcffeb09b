#include "checkpoint/snapshot.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/fixture.h"

namespace transnormer {
namespace {

using test::first_difference;
using test::TinyTraining;

std::vector<const void*> places_of(const std::vector<NamedTensor>& tensors) {
  std::vector<const void*> places;
  for (const NamedTensor& named : tensors) {
    places.push_back(named.tensor.const_data_ptr());
  }
  return places;
}

TEST(CopyTensors, CopiesEveryBitAndKeepsItWhenTheTensorsChange) {
  const TinyTraining training;
  const TinyTraining same;
  std::vector<NamedTensor> copies;
  copy_tensors(named_tensors(*training.model), copies);
  {
    const at::NoGradGuard no_grad;
    named_tensors(*training.model).front().tensor.zero_();
  }
  EXPECT_EQ(first_difference(copies, named_tensors(*same.model)), "");
}

TEST(CopyTensors, UsesTheMemoryOfTheCopyBefore) {
  const TinyTraining first(1);
  const TinyTraining second(2);
  std::vector<NamedTensor> copies = make_room(first.optimizer->named_state());
  const std::vector<const void*> places = places_of(copies);
  for (const TinyTraining* training : {&first, &second}) {
    copy_tensors(training->optimizer->named_state(), copies);
    EXPECT_EQ(first_difference(copies, training->optimizer->named_state()), "");
    EXPECT_EQ(places_of(copies), places);
  }
}

TEST(CopyTensors, MakesAnewWhatIsOfAnotherShape) {
  const TinyTraining training;
  std::vector<NamedTensor> copies = make_room(named_tensors(*training.model));
  copy_tensors(training.optimizer->named_state(), copies);
  EXPECT_EQ(first_difference(copies, training.optimizer->named_state()), "");
}

}  // namespace
}  // namespace transnormer
