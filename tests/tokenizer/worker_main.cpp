// Tests that train sentencepiece models start themselves once more, as the program does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/sentencepiece_trainer.h"

int main(int argc, char** argv) {
  if (transnormer::is_sentencepiece_worker(argc, argv)) {
    return transnormer::run_sentencepiece_worker(argv);
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
