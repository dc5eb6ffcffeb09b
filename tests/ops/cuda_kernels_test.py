"""The GPU's kernels fit the processors that they are compiled for: next to nothing spills from
registers, and a block of threads finds its registers and its static shared memory. What the
attentions ask beside that when they start is held to its limits in cuda_emulation_test.cpp.

Reads what the assembler told when the kernels were built (build/kernels.log); needs no GPU. Skipped
where they were not built.
"""

import dataclasses
import os
import pathlib
import re
import unittest

LOG = pathlib.Path(os.environ.get("TRANSNORMER_KERNELS_LOG", "build/kernels.log"))

REGISTERS = 65536  # of a multiprocessor, and the most that a block may have
REGISTERS_OF_A_THREAD = 255
REGISTER_STEP = 8  # they are handed out by so many a thread
STATIC_SHARED = 48 << 10
GPUS = ("sm_80", "sm_90")
# Two registers of residual, so that a fourth block fits a multiprocessor; a loop that spills its sums
# takes hundreds of bytes.
SPILLED = 16

# The entry points of ops/cuda/launcher.cuh, with the threads of a block that they start.
THREADS = {"run_elements": 256, "run_elementwise": 256, "run_rows": 256, "run_blocks": 512,
           "run_blocks_shared": 256}


@dataclasses.dataclass
class Kernel:
    name: str
    gpu: str
    stack: int = -1
    spilled: int = -1
    registers: int = -1
    shared: int = 0

    @property
    def entry(self):
        """The entry point that it is an instance of: what stands in its mangled name."""
        return next((name for name in sorted(THREADS, key=len, reverse=True)
                     if f"{len(name)}{name}" in self.name), None)


def kernels(text):
    """Every kernel that the assembler's log tells of."""
    found = []
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            found.append(Kernel(*match.groups()))
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            found[-1].stack = int(match.group(1))
            found[-1].spilled = int(match.group(2)) + int(match.group(3))
        elif match := re.search(r"Used (\d+) registers", line):
            found[-1].registers = int(match.group(1))
            if shared := re.search(r"(\d+) bytes smem", line):
                found[-1].shared = int(shared.group(1))
    return found


def faults(kernel):
    """One line for each limit that a kernel passes."""
    threads = THREADS.get(kernel.entry)
    if threads is None:
        return [f"{kernel.name}: no entry point of launcher.cuh, so its threads are not known"]
    if min(kernel.stack, kernel.spilled, kernel.registers) < 0:
        return [f"{kernel.name}: the log does not tell what it uses"]
    found = []
    if kernel.spilled > SPILLED:
        found.append(f"{kernel.spilled} bytes spilled")
    if kernel.registers > REGISTERS_OF_A_THREAD:
        found.append(f"{kernel.registers} registers a thread")
    taken = -(-kernel.registers // REGISTER_STEP) * REGISTER_STEP * threads
    if taken > REGISTERS:
        found.append(f"{taken} registers a block")
    # linear_attention_fits and block_attention_fits leave no room beside the dynamic part.
    most = 0 if kernel.entry == "run_blocks_shared" else STATIC_SHARED
    if kernel.shared > most:
        found.append(f"{kernel.shared} bytes of static shared memory, at most {most}")
    return [f"{kernel.name} for {kernel.gpu}: {fault}" for fault in found]


class TheKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not LOG.exists():
            raise unittest.SkipTest("the GPU's kernels were not built: no CUDA tools (nvcc) here")
        cls.kernels = kernels(LOG.read_text())

    def test_are_there_for_every_processor(self):
        """A log that tells nothing would find no fault."""
        for gpu in GPUS:
            names = [kernel.name for kernel in self.kernels if kernel.gpu == gpu]
            self.assertGreater(len(names), 40, gpu)
            entries = {kernel.entry for kernel in self.kernels if kernel.gpu == gpu}
            self.assertEqual(entries, set(THREADS), gpu)
            for part in ("CrossEntropyRow", "ChunkGradients", "BlockGradients", "GatedElement"):
                self.assertTrue(any(part in name for name in names), (gpu, part))

    def test_find_their_registers_and_spill_next_to_nothing(self):
        found = [fault for kernel in self.kernels for fault in faults(kernel)]
        self.assertFalse(found, "\n" + "\n".join(found))


class APlantedFault(unittest.TestCase):
    FINE = Kernel("_ZN10run_blocksI1xE", "sm_80", stack=0, spilled=0, registers=128, shared=256)

    def fault_of(self, **changes):
        return " ".join(faults(dataclasses.replace(self.FINE, **changes)))

    def test_is_found(self):
        self.assertEqual(self.fault_of(), "")
        self.assertIn("20 bytes spilled", self.fault_of(spilled=20))
        self.assertIn("256 registers a thread", self.fault_of(registers=256))
        self.assertIn("69632 registers a block", self.fault_of(registers=129))
        self.assertIn("shared memory", self.fault_of(shared=50000))
        self.assertIn("shared memory", self.fault_of(name="_ZN17run_blocks_sharedI1xE"))
        self.assertIn("no entry point", self.fault_of(name="_ZN9somethingI1xE"))
        self.assertIn("does not tell", self.fault_of(registers=-1))

    def test_is_read_from_the_assemblers_words(self):
        text = """ptxas info    : Compiling entry function '_ZN10run_blocksI1xE' for 'sm_90'
ptxas info    : Function properties for _ZN10run_blocksI1xE
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 256 bytes smem, 408 bytes cmem[0]
"""
        self.assertEqual(kernels(text), [Kernel("_ZN10run_blocksI1xE", "sm_90", 16, 12, 30, 256)])


if __name__ == "__main__":
    unittest.main()
