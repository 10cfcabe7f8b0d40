"""The program that learns to draw pictures of a class."""
import programs

from outboard import png


def test_diffusion(tmp_path):
    fashion = programs.fashion_files(tmp_path)
    weights, out = tmp_path / "weights", tmp_path / "picture.png"
    said = programs.run("diffusion.py", "train", "--steps", 30, "--batch", 16, "--width", 4, "--weights", weights,
                        "--seed", 1, "--print-every", 29, environment=fashion).stderr
    losses = [float(line.split()[3]) for line in said.splitlines() if line.startswith("step ")]
    assert losses[-1] < 0.8 * losses[0]
    pixels = []
    for _ in range(2):  # the same seed, the same picture
        drawn = programs.run("diffusion.py", "draw", 3, "--count", 5, "--steps", 4, "--weights", weights, "--out", out,
                             "--seed", 2).stdout
        assert "5 pictures in 4 steps and 1 round trip" in drawn
        pixels.append(png.read(out))
    assert pixels[0].shape == (56, 84) and (pixels[0][28:, 56:] == 0).all() and pixels[0].std() > 10
    assert (pixels[0] == pixels[1]).all()
    assert "12" in programs.run("diffusion.py", "draw", 12, "--weights", weights, code=1).stderr
