"""Images and volumes: decoding, bit depth, DICOM, and storing them."""
